"""gpt-train --sweep: a run for each combination of values."""

import json
import re
import signal
import subprocess
import unittest

import programs


class Sweep(programs.WithText):
    def words(self, name, *values, **options):
        words = {**programs.TINY, "data.text": self.text, "output_dir": self.root / name,
                 **{key.replace("__", "."): value for key, value in options.items()}}
        return [*programs.flags(words), "--sweep", *values]

    def run_sweep(self, name, *values, check_code=0, more=(), **options):
        return programs.run("gpt-train", *self.words(name, *values, **options), *more, check_code=check_code)

    def test_each_combination_has_a_run_and_the_best_comes_first(self):
        file = self.root / "all.json"
        done = self.run_sweep("grid", "learning_rate=1e-4,1e-2", "model.n_layer=1", more=("--result", file), training__eval_batches=0)
        head, *lines = done.stdout.splitlines()
        self.assertEqual(head.split(), ["val", "loss", "bits/byte", "loss", "tokens", "seconds", "settings"])
        folders = {path.name for path in (self.root / "grid").iterdir()}
        self.assertEqual(folders, {f"learning_rate={rate},model.n_layer=1" for rate in ("1e-2", "1e-4")})
        found = []
        for line in lines:
            loss, bits, _, tokens, _, state, rate, layers = line.split()
            self.assertEqual(state, "done")
            run = self.root / "grid" / f"{rate},{layers}"
            last = [record for record in programs.metrics(run) if "val_loss" in record][-1]
            self.assertEqual((float(loss), float(bits)), (round(last["val_loss"], 4), round(last["val_bits_per_byte"], 4)))
            self.assertEqual(int(tokens.replace(",", "")), 24 * 2 * 4 * 16)
            found.append(last["val_loss"])
        self.assertEqual((len(found), found), (2, sorted(found)))
        self.assertIn("learning_rate=1e-2", lines[0])
        results = json.loads(file.read_text())
        self.assertEqual([one["result"]["validation"]["val_loss"] for one in results], found)
        self.assertEqual(results[0]["sweep"]["learning_rate"], "1e-2")
        again = self.run_sweep("grid", "learning_rate=1e-4,1e-2", "model.n_layer=1", more=("--json",), training__eval_batches=0)
        self.assertEqual(again.stderr.count("is finished"), 2)
        told = json.loads(again.stdout)
        self.assertEqual([one["result"]["validation"] for one in told], [one["result"]["validation"] for one in results])
        for one in told:
            self.assertGreater(one["result"]["seconds"]["updates_in_all"], 0)

    def test_the_runs_share_its_time(self):
        """Steps end them before it does."""
        for words, swept in ((("--max-time", "10 minutes"), "seed=1,2"), (("--training.max_minutes=10",), "seed=1,2"), ((), "max_time=7 minutes,300 seconds")):
            with self.subTest(words=words, swept=swept):
                name = f"timed {len(words)} {swept}"
                done = self.run_sweep(name, swept, more=words, training__max_steps=2, training__eval_interval=0)
                times = {re.search("max_time: (.*?) +#", path.read_text())[1] for path in (self.root / name).glob("*/effective_config.yaml")}
                self.assertEqual(times, {"7 minutes", "5 minutes"} if "max_time" in swept else {"5 minutes"})
                self.assertEqual("each of 2 runs has 5m00s" in done.stderr, "max_time" not in swept, done.stderr)

    def test_a_run_that_diverges_stands_in_the_table(self):
        """Weights explode at the higher rate, and every update from then on is skipped."""
        done = self.run_sweep("diverges", "learning_rate=10,1e-3", training__max_steps=600, training__gradient_clip=0, training__warmup_steps=0,
                              training__lr_schedule="constant", training__weight_decay=10, training__log_interval=100, training__eval_interval=0)
        _, best, other = done.stdout.splitlines()
        self.assertTrue(best.endswith("learning_rate=1e-3"), best)
        self.assertEqual((other.split()[:2], other.split()[-2:]), (["-", "-"], ["diverged", "learning_rate=10"]))

    def test_a_run_that_fails_keeps_neither_the_others_nor_the_table(self):
        done = self.run_sweep("fails", f"data={self.text},{self.root}/none.txt", "seed=3", check_code=3, training__max_steps=2)
        self.assertIn("cannot read", done.stderr)
        self.assertEqual([line.split()[5] for line in done.stdout.splitlines()[1:]], ["done", "exit"])

    def test_a_run_that_is_refused_when_all_begin_anew_has_no_result_of_the_one_before(self):
        other = self.root / "other.txt"
        other.write_bytes(self.text.read_bytes())
        swept = f"data={self.text},{other}"
        self.run_sweep("anew", swept, training__max_steps=2, training__eval_interval=2)
        other.unlink()
        done = self.run_sweep("anew", swept, check_code=3, more=("--restart",), training__max_steps=2, training__eval_interval=2)
        refused = next(line for line in done.stdout.splitlines() if str(other) in line)
        self.assertEqual(refused.split()[:3], ["-", "-", "-"])

    def test_what_is_wrong_with_any_run_is_said_before_the_first(self):
        for values, text in ((("learning_rat=1,2",), "did you mean '--learning_rate'?"), (("n_layer=1,two",), "got 'two'"),
                             (("n_layer",), "'n_layer' is not KEY=VALUE,VALUE without spaces, such as learning_rate=1e-3,3e-3"),
                             (("n_layer=1,,2",), "is not KEY=VALUE,VALUE"), (("n_layer=1,1",), "n_layer has the value 1 twice"),
                             (("n_layer=1", "n_layer=2"), "n_layer is given twice"), (("n_layer=1,2", "n_head=3,2"), "n_head"), (("learning_rate=1e-3,0.001",), "would be the same run"),
                             (("output_dir=a,b",), "would be the same run"), (("help=true",), "no setting of a run")):
            refused = self.run_sweep("wrong", *values, check_code=2)
            self.assertEqual(refused.stderr.strip().count("\n"), 0, refused.stderr)
            self.assertIn(text, refused.stderr)
        self.assertFalse((self.root / "wrong").exists())
        self.assertIn("--sweep trains runs", self.run_sweep("wrong", "n_layer=1,2", more=("--eval-only",), check_code=2).stderr)
        (self.root / "single").mkdir()
        (self.root / "single/ckpt.pt").touch()
        self.assertIn("holds a run of its own", self.run_sweep("single", "n_layer=1,2", check_code=2).stderr)

    def test_the_worse_half_ends_at_a_third(self):
        """Rates that are too low by far are the worse ones from the first update on."""
        rates, options = "learning_rate=1e-7,1e-2", {"training__max_steps": 36, "training__eval_interval": 12, "training__sample_interval": 12, "training__min_lr": 0}
        done = self.run_sweep("halved", rates, more=("--stop-poor-runs",), **options)
        states = {line.split()[-1]: line.split()[5] for line in done.stdout.splitlines()[1:]}
        self.assertEqual(states, {"learning_rate=1e-2": "done", "learning_rate=1e-7": "poor"})
        self.assertIn("learning_rate=1e-7: val loss", done.stderr)
        poor = [record["step"] for record in programs.metrics(self.root / "halved/learning_rate=1e-7") if "val_loss" in record]
        self.assertEqual(poor, [12, 24])
        samples = [(self.root / f"halved/learning_rate=1e-2/samples/step_000000{step}.txt").read_text() for step in (24, 36)]
        self.assertGreater(len(samples[0]), len(samples[1]) / 2, "the stop comes after the sample")
        other = self.run_sweep("halved", rates, more=("--stop-poor-runs",), check_code=4, **options, model__n_embd=16)
        self.assertIn("n_embd", other.stderr)
        self.run_sweep("whole", "learning_rate=1e-2", **options)
        losses = [[(record["step"], record["val_loss"]) for record in programs.metrics(self.root / f"{name}/learning_rate=1e-2") if "val_loss" in record]
                  for name in ("halved", "whole")]
        self.assertEqual(losses[0], losses[1], "the stop at a third changes nothing")
        again = self.run_sweep("halved", rates, more=("--stop-poor-runs", "--json"), **options)
        self.assertEqual([(one["status"], one.get("is_poor", False)) for one in json.loads(again.stdout)], [(0, False), (0, True)])
        self.assertEqual(again.stderr.count("is finished"), 1)
        anew = self.run_sweep("halved", rates, more=("--stop-poor-runs", "--restart"), **options)
        self.assertEqual(anew.stderr.count("Resuming from"), 1)
        alone = programs.run("gpt-train", *self.words("halved", rates)[:-2], "--stop-poor-runs", check_code=2)
        self.assertIn("--stop-poor-runs is about the runs of a sweep", alone.stderr)

    def test_runs_with_other_tokens_are_ordered_by_bits(self):
        """The loss of a byte is the lower one here (0.80 and 0.83), as it stands for less text."""
        done = self.run_sweep("tokens", "tokenizer=byte,bpe:300", training__max_steps=60)
        _, first, second = (line.split() for line in done.stdout.splitlines())
        self.assertLess(float(first[1]), float(second[1]))
        self.assertEqual(first[-1], "tokenizer=bpe:300")

    def test_a_sweep_that_is_stopped_goes_on(self):
        words = self.words("stopped", "seed=1,2", training__max_steps=100_000, training__log_interval=20, training__eval_interval=0)
        first = subprocess.Popen(programs.command("gpt-train", *words), stderr=subprocess.PIPE, text=True)
        for line in first.stderr:
            if re.match(r"step +20/", line):
                break
        first.send_signal(signal.SIGINT)
        rest = first.stderr.read()
        first.stderr.close()
        self.assertEqual(first.wait(programs.HANGS), 130, rest)
        self.assertIn("The sweep is stopped; the same command goes on with it", rest)
        self.assertFalse((self.root / "stopped/seed=2").exists())
        step = int(re.search(r"Stopped by SIGINT after step (\d+)", rest)[1])
        done = self.run_sweep("stopped", "seed=1,2", training__max_steps=step + 5, training__log_interval=20, training__eval_interval=0)
        self.assertEqual(done.stderr.count("Resuming from"), 1)
        self.assertEqual(len(done.stdout.splitlines()), 3)


if __name__ == "__main__":
    unittest.main()
