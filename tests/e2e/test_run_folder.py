"""Where a run lives, what it goes on from, and what it never overwrites."""

import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import torch

import programs


def step_of(path) -> int:
    return torch.load(path, weights_only=True)["step"]


class RunFolder(programs.WithText):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Kept checkpoints at 4, 8, 12 and 16 of 16 steps; every test works on a copy.
        programs.train(cls.root / "whole", cls.text, training__max_steps=16, training__checkpoint_interval="4 steps", training__keep_last=9)

    def copy(self, name):
        return pathlib.Path(shutil.copytree(self.root / "whole", self.root / name))

    def train(self, run, text=None, check_code=0, **options):
        return programs.train(run, text or self.text, check_code, **{"training__max_steps": 20, **options})

    def only_line(self, done) -> str:
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        return done.stderr

    def test_a_configuration_in_the_folder_is_not_overwritten(self):
        run = self.root / "with_config"
        run.mkdir()
        config = run / "config.yaml"
        config.write_text("# mine\nmodel: {n_layer: 1, n_head: 2, n_embd: 16, block_size: 16}\n"
                          "training: {max_steps: 2, batch_size: 2, use_amp: false}\ndevice: cpu\nthreads: 1\n")
        before = config.read_text()
        for _ in range(2):
            programs.run("gpt-train", "--config", config, "--data", self.text, "--output_dir", run, check_code=0)
        self.assertEqual(config.read_text(), before)
        effective = run / "effective_config.yaml"
        self.assertIn("n_embd: 16", effective.read_text())
        mine = effective.read_text() + "# my remark\n"
        effective.write_text(mine)
        programs.run("gpt-train", "--config", effective, "--max_steps", 3, check_code=0)
        self.assertEqual(effective.read_text(), mine)

    def test_the_default_folder_is_named_after_the_configuration_else_the_text(self):
        work = self.root / "work"
        work.mkdir()
        small = ["--n_layer", 1, "--n_head", 2, "--n_embd", 16, "--block_size", 16, "--batch_size", 2, "--max_steps", 1, "--device", "cpu"]
        (work / "tiny.yaml").write_text("seed: 2\n")
        programs.run("gpt-train", "--config", "tiny.yaml", "--data", self.text, *small, cwd=work, check_code=0)
        programs.run("gpt-train", "--data", self.text, *small, cwd=work, check_code=0)
        self.assertEqual(sorted(p.name for p in (work / "models").iterdir()), ["text", "tiny"])
        # A run in the former default folder is not forgotten: the command that made it goes on with it, and no other does.
        (work / "models/text").rename(work / "models/run")
        again = programs.run("gpt-train", "--data", self.text, *small, cwd=work, check_code=0)
        self.assertIn("models/run is finished", again.stderr)
        other = programs.run("gpt-train", "--data", self.text, *small, "--lr", 0.002, cwd=work, check_code=0)
        self.assertIn("models/run holds a run that differs only in training.learning_rate: --output_dir models/run would continue",
                      other.stderr)
        # gpt-generate takes the newest.
        self.assertIn("models/text/ckpt.pt", programs.run("gpt-generate", "--max-new-tokens", 1, cwd=work, check_code=0).stderr)

    def test_another_text_in_a_used_folder_is_another_run(self):
        for name, content in {"other characters": "ÄÖÜ§\n" * 400, "same characters": self.text.read_text()[::-1]}.items():
            with self.subTest(name):
                other = self.root / "other.txt"
                other.write_text(content)
                line = self.train(self.root / "whole", other, check_code=4).stderr.splitlines()[-1]
                self.assertIn("belongs to another run: it was trained on", line)
                self.assertIn(f"--output_dir {self.root}/whole-2", line)

    def test_another_split_is_named_before_the_text_is_prepared(self):
        run = self.copy("split")
        for key, before, after in (("max_chars", 0, 5000), ("validation_fraction", 0.1, 0.2)):
            with self.subTest(key), tempfile.TemporaryDirectory() as cache:
                done = self.train(run, check_code=4, data__cache_dir=cache, **{f"data__{key}": after})
                self.assertIn(f"its configuration differs (data.{key}: {before} -> {after}); restore", done.stderr)
                self.assertEqual(list(pathlib.Path(cache).iterdir()), [])

    def test_the_same_text_under_another_path_goes_on(self):
        run = self.copy("moved_text")
        moved = self.root / "elsewhere" / "copy.txt"
        moved.parent.mkdir()
        shutil.copy(self.text, moved)
        self.assertIn("after step 16", self.train(run, moved).stderr)

    def test_a_checkpoint_that_is_not_there_is_named_as_such(self):
        line = self.train(self.root / "nothing_yet", check_code=4, training__resume_from=self.root / "mistyped").stderr
        self.assertIn("mistyped", line)
        self.assertNotIn("holds", line)

    def test_resume_from_a_path_goes_on_from_its_own_checkpoint(self):
        run = self.root / "from_path"
        source = {"training__resume_from": self.root / "whole"}  # a folder stands for its ckpt.pt
        self.assertIn("after step 16", self.train(run, training__max_steps=18, **source).stderr)
        self.assertIn("after step 18", self.train(run, **source).stderr)
        self.assertEqual(step_of(run / "ckpt.pt"), 20)

    def test_resume_from_a_path_beyond_the_run_is_refused(self):
        run = self.root / "beyond"
        done = self.train(run, check_code=2, training__max_steps=10, training__resume_from=self.root / "whole/ckpt.pt")
        self.assertIn("whole/ckpt.pt is at step 16, but training.max_steps is 10", done.stderr)
        self.assertIn("set training.max_steps above 16", done.stderr)
        self.assertFalse((run / "ckpt.pt").exists())

    def test_a_checkpoint_that_is_not_there_is_named_though_the_folder_holds_a_run(self):
        line = self.only_line(self.train(self.copy("missing"), check_code=4, training__resume_from=self.root / "mistyped.pt"))
        self.assertIn("mistyped.pt does not exist", line)

    def test_changes_are_listed_only_where_the_run_is_accepted(self):
        run = self.copy("changed")
        refused = self.train(run, check_code=4, training__log_interval=3, model__n_embd=64)
        self.assertNotIn("changed since the checkpoint", refused.stderr)
        self.assertIn("changed since the checkpoint: training.log_interval: 1 -> 3", self.train(run, training__log_interval=3).stderr)

    def test_a_length_below_what_is_done_changes_nothing_and_says_so(self):
        run = self.copy("lowered")
        fact = f"{run} is at step 16 already, beyond max_steps 10"
        done = self.train(run, training__max_steps=10, training__eval_interval=3)
        self.assertEqual(done.stderr.splitlines()[-1], f"{fact}; set training.max_steps above 16 to continue, or choose another "
                         f"output_dir, such as {run}-2")
        self.assertNotIn("changed since the checkpoint", done.stderr)
        words = programs.flags({**programs.TINY, "data.text": self.text, "output_dir": run, "training.max_steps": 10})
        self.assertEqual(programs.checks(*words, "--no-probe", check_code=0)["output folder"]["detail"], fact)
        self.assertNotIn("changed since the checkpoint", programs.run("gpt-diagnose", *words, "--no-probe").stderr)

    def test_a_run_without_its_text_names_the_configuration_that_continues_it(self):
        run = self.copy("no_text")
        hint = f"or continue this run with --config {run}/effective_config.yaml\n"
        for words in (["--output_dir", run], ["--eval-only", "--resume_from", run / "ckpt_best.pt"], ["--resume_from", run]):
            done = programs.run("gpt-train", *words, check_code=2)
            self.assertTrue(done.stderr.endswith(hint), done.stderr)
        config = run / "effective_config.yaml"
        self.assertIn("is finished", programs.run("gpt-train", "--config", config, check_code=0).stderr)
        self.assertNotIn("continue", programs.run("gpt-train", "--output_dir", self.root / "none", check_code=2).stderr)

    def test_what_came_of_a_run_is_one_object_for_programs(self):
        run, file = self.root / "result", self.root / "result.json"
        words = {**programs.TINY, "data.text": self.text, "output_dir": run, "training.eval_batches": 2}
        printed = programs.run("gpt-train", *programs.flags(words), "--result", file, "--json", check_code=0)
        result = json.loads(file.read_text())
        self.assertEqual(json.loads(printed.stdout), result)
        metrics = programs.metrics(run)
        last, validations = [r for r in metrics if "step_ms" in r][-1], [r for r in metrics if "val_loss" in r]
        self.assertEqual((result["state"], result["step"], result["loss"], result["tokens"]), ("done", last["step"], last["loss"], last["tokens"]))
        self.assertEqual(result["seed"], 1337)
        for key, record in (("validation", validations[-1]), ("best_validation", min(validations, key=lambda r: r["val_loss"]))):
            self.assertEqual(result[key]["step"], record["step"])
            for name in ("val_loss", "val_loss_error", "val_perplexity", "val_bits_per_byte"):
                self.assertAlmostEqual(result[key][name], record[name], places=12)
            low, high = result[key]["val_loss_interval"]
            self.assertAlmostEqual(high - low, 2 * 1.96 * record["val_loss_error"], places=9)
        parts = result["seconds"]
        self.assertAlmostEqual(parts["all"], sum(parts[part] for part in ("before_training", "updates", "validation", "other")), places=2)
        again = programs.run("gpt-train", *programs.flags(words), "--json", check_code=0)  # finished already
        told = json.loads(again.stdout)
        for key in ("state", "step", "loss", "tokens", "validation", "best_validation", "settings"):
            self.assertEqual(told[key], result[key], key)

    def test_a_result_that_cannot_be_written_is_refused_before_the_run(self):
        chats = self.root / "chats.jsonl"
        chats.write_text('{"messages": [{"role": "user", "content": "ok?"}, {"role": "assistant", "content": "yes"}]}\n')
        words = ["--data", self.text, "--output_dir", self.root / "no_result"]
        for path, code, text in (("/proc/none/result.json", 8, "cannot"), (self.root, 2, "is not a regular file"),
                                 ("/dev/null", 2, "is not a regular file"), (self.text, 2, "holds no result"), (chats, 2, "holds no result")):
            line = self.only_line(programs.run("gpt-train", *words, "--result", path, check_code=code))
            self.assertIn(text, line)
        line = self.only_line(programs.run("gpt-train", *words, "--result", self.root / "r.json", "--eval-only", check_code=2))
        self.assertIn("--result is for a run that trains", line)
        self.assertFalse((self.root / "no_result").exists())

    def test_eval_only_and_restart_exclude_each_other(self):
        done = programs.run("gpt-train", "--data", self.text, "--eval-only", "--restart", check_code=2)
        self.assertIn("--eval-only and --restart exclude each other", done.stderr)

    def test_the_mean_loss_of_an_epoch_says_since_when(self):
        words = {**programs.TINY, "data.text": self.text, "training.epochs": 1, "training.log_interval": 20, "training.eval_interval": 0,
                 "training.checkpoint_interval": "30 steps", "training.keep_last": 1}
        del words["training.max_steps"]
        whole, parted = self.root / "epoch", self.root / "epoch_from_30"
        done = programs.run("gpt-train", *programs.flags({**words, "output_dir": whole}), check_code=0)
        self.assertRegex(done.stderr, r"epoch 1/1 \| mean loss")
        parted.mkdir()
        shutil.copy(next(whole.glob("ckpt_step_*")), parted / "ckpt.pt")
        step = step_of(parted / "ckpt.pt")
        done = programs.run("gpt-train", *programs.flags({**words, "output_dir": parted}), check_code=0)
        self.assertRegex(done.stderr, rf"epoch 1/1 \| since step {step}: mean loss")

    def test_resume_from_a_path_does_not_take_over_another_run(self):
        line = self.only_line(self.train(self.copy("taken"), check_code=4, training__resume_from=self.root / "whole/ckpt_step_00000008.pt"))
        self.assertIn("already holds a run", line)
        self.assertIn("--restart", line)

    def test_none_goes_on_with_the_run_that_it_started_and_with_no_other(self):
        run = self.root / "from_none"
        self.train(run, training__max_steps=5, training__resume_from="none")
        self.assertIn("after step 5", self.train(run, training__resume_from="none").stderr)
        self.assertIn("already holds a run", self.train(self.root / "whole", check_code=4, training__resume_from="none").stderr)

    def test_a_path_inside_the_folder_goes_back_once(self):
        run = self.copy("rollback")
        back = {"training__resume_from": run / "ckpt_step_00000008.pt"}
        first = self.train(run, training__max_steps=10, **back)
        self.assertIn("Going back to", first.stderr)
        self.assertIn("after step 8", first.stderr)
        aside = run / "set_aside/1"
        self.assertEqual(step_of(aside / "ckpt.pt"), 16)
        self.assertTrue((aside / "ckpt_step_00000012.pt").exists())
        self.assertFalse((run / "ckpt_step_00000012.pt").exists())
        second = self.train(run, **back)
        self.assertIn("after step 10", second.stderr)
        self.assertEqual(step_of(run / "ckpt.pt"), 20)
        self.assertFalse((run / "set_aside/2").exists())

    def test_an_older_last_checkpoint_sets_later_ones_aside(self):
        run = self.copy("put_back")
        shutil.copy(run / "ckpt_step_00000004.pt", run / "ckpt.pt")
        self.assertIn("after step 4", self.train(run).stderr)
        self.assertEqual(sorted(p.name for p in (run / "set_aside/1").iterdir()),
                         ["ckpt_step_00000008.pt", "ckpt_step_00000012.pt", "ckpt_step_00000016.pt"])

    def test_a_damaged_last_checkpoint_is_set_aside(self):
        run = self.copy("damaged")
        (run / "ckpt.pt").write_bytes(b"nothing")
        done = self.train(run)
        self.assertIn("after step 16", done.stderr)
        self.assertEqual((run / "set_aside/1/ckpt.pt").read_bytes(), b"nothing")

    def test_restart_moves_the_old_run_aside(self):
        run = self.copy("restart")
        self.train(run, training__max_steps=17, report__tensorboard="true")
        before = sorted(path.name for path in run.iterdir())
        empty = self.root / "empty.txt"
        empty.touch()
        for key, wrong, code in (("data.text", empty, 3), ("training.resume_from", run / "none.pt", 4)):
            words = programs.flags({**programs.TINY, "data.text": self.text, "output_dir": run, key: wrong})
            programs.run("gpt-train", *words, "--restart", check_code=code)
            self.assertEqual(sorted(path.name for path in run.iterdir()), before, "a start that is refused takes the run away")
        done = programs.run("gpt-train", *programs.flags({**programs.TINY, "data.text": self.text, "output_dir": run,
                                                         "training.max_steps": 3}), "--restart", check_code=0)
        self.assertIn("Starting anew", done.stderr)
        self.assertEqual(sorted(path.name for path in run.iterdir()),
                         ["ckpt.pt", "ckpt_best.pt", "effective_config.yaml", "metrics.jsonl", "report.html", "set_aside",
                          "status.json", "train.log"])
        self.assertTrue((run / "set_aside/1/report.html").exists())
        self.assertEqual(len(list((run / "set_aside/1/tensorboard").iterdir())), 1)
        self.assertEqual(step_of(run / "ckpt.pt"), 3)
        self.assertEqual(step_of(run / "set_aside/1/ckpt.pt"), 17)
        self.assertTrue(all(record["step"] <= 3 for record in programs.metrics(run)))

    def test_several_processes_begin_with_the_weights_of_the_run_that_they_set_aside(self):
        run = self.copy("replaced")
        words = {**programs.TINY, "data.text": self.text, "output_dir": run, "training.init_from": run, "training.max_steps": 2,
                 "distributed.processes": 2}
        done = programs.run("gpt-train", *programs.flags(words), "--restart", check_code=0)
        self.assertIn("Starting anew", done.stderr)
        self.assertIn(f"Beginning a new run with the weights of {run}/ckpt.pt (step 16)", done.stderr)
        self.assertEqual(step_of(run / "set_aside/1/ckpt.pt"), 16)
        self.assertFalse((run / ".restart").exists())

    def test_metrics_without_checkpoints_move_aside(self):
        run = self.copy("no_checkpoints")
        for path in run.glob("ckpt*.pt"):
            path.unlink()
        done = self.train(run, training__max_steps=2)
        self.assertIn("the run begins anew", done.stderr)
        self.assertTrue((run / "set_aside/1/metrics.jsonl").exists())
        self.assertTrue(all(record["step"] <= 2 for record in programs.metrics(run)))

    def test_without_evaluations_there_is_no_final_one(self):
        run = self.root / "never"
        done = self.train(run, training__max_steps=3, training__eval_interval=0)
        self.assertNotIn("val loss", done.stderr)
        self.assertFalse((run / "ckpt_best.pt").exists())
        self.assertIn("is finished", self.train(run, training__max_steps=3, training__eval_interval=0).stderr)

    def test_the_first_steps_are_logged_and_the_last_line_says_what_is_next(self):
        run = self.root / "lines"
        done = self.train(run, training__log_interval=20, training__eval_interval=0)
        self.assertEqual([r["step"] for r in programs.metrics(run)], list(range(1, 21)))
        self.assertEqual([r["step"] for r in programs.metrics(run) if "step_ms" in r], [1, 2, 5, 10, 20])
        self.assertEqual(done.stderr.strip().splitlines()[-1], f"Next: gpt-generate --checkpoint {run}")

    def test_eval_only_prints_the_loss_and_changes_nothing(self):
        run = self.copy("evaluated")
        before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
        done = programs.run("gpt-train", *programs.flags({**programs.TINY, "data.text": self.text, "output_dir": run}), "--eval-only",
                            check_code=0)
        logged = programs.losses(run)["val", 16]
        self.assertRegex(done.stdout, rf"^{run}/ckpt.pt: step 16 \| val loss {logged:.4f} \| .* tokens\n$")
        self.assertEqual(before, {path: path.stat().st_mtime_ns for path in run.rglob("*")})
        programs.run("gpt-train", "--data", self.text, "--output_dir", self.root / "nothing", "--eval-only", check_code=4)

    def test_checkpoints_are_written_by_the_clock(self):
        run = self.root / "clock"
        words = {**programs.TINY, "data.text": self.text, "output_dir": run, "training.max_steps": 10**6, "training.eval_interval": 0,
                 "training.checkpoint_interval": "1 second"}
        process = subprocess.Popen(programs.command("gpt-train", *programs.flags(words)), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until = time.monotonic() + programs.HANGS
            while not (run / "ckpt.pt").exists() and time.monotonic() < until:
                time.sleep(0.05)
            self.assertTrue((run / "ckpt.pt").exists())
        finally:
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=programs.HANGS), 143)


if __name__ == "__main__":
    unittest.main()
