"""gpt-eval: the numbers of lm-evaluation-harness, the same ones from a checkpoint and from its export, and going on after a stop."""

import json
import math
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import generating
import programs

FIXTURES = programs.SOURCE / "tests" / "fixtures" / "eval"
CHOICES = ("hellaswag", "arc", "piqa")


class Eval(generating.TrainedModel):
    def evaluate(self, *words, code=0, model=FIXTURES / "model"):
        return programs.run("gpt-eval", "--checkpoint", model, "--device", "cpu", "--threads", 1, *words, check_code=code)

    def results(self, *words, **options):
        """By task: its entry of --json, whose metrics are their values."""
        report = json.loads(self.evaluate(*words, "--json", **options).stdout)
        for result in report["results"]:
            result["values"] = {name: metric["value"] for name, metric in result["metrics"].items()}
        return {result["task"]: result for result in report["results"]}

    def assert_refused(self, code, message, *words, **options):
        done = self.evaluate(*words, code=code, **options)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr.splitlines()[-1], "^error: .*" + message)

    def tasks(self, *names):
        return ["--tasks", *(f"{name}:{FIXTURES / name}.jsonl" for name in names)]

    def test_all_that_the_harness_says(self):
        expected = json.loads((FIXTURES / "expected.json").read_text())
        expected["text"] = expected.pop("documents")
        found = self.results("--data", FIXTURES / "documents.jsonl", *self.tasks(*CHOICES, "lambada", "wikitext"))
        self.assertEqual(found.keys(), expected.keys())
        for task, values in expected.items():
            for name, value in values.items():
                if name in found[task]["values"]:
                    exact = name.startswith("acc")
                    self.assertAlmostEqual(found[task]["values"][name], value, delta=1e-12 if exact else 1e-4 * value, msg=(task, name))
        shown = self.evaluate("--data", FIXTURES / "documents.jsonl", *self.tasks("hellaswag"), "--limit", 3).stdout
        self.assertRegex(shown, r"(?m)^text \(.*documents.jsonl\): 3 documents, .* tokens predicted; windows of 64 tokens, stride 64$")
        self.assertIn("note: only the first 3 documents (--limit)", shown)
        self.assertIn("note: only the first 3 examples (--limit)", shown)
        self.assertRegex(shown, r"(?m)^  acc +0\.\d{4} ± 0\.\d{4} +95 %: 0\.\d{4} to 0\.\d{4}$")

    def test_a_checkpoint_and_its_export_are_the_same_model(self):
        run, text = self.root / "gpt2_form", self.root / "text.txt"
        programs.train(run, text, model__norm="layernorm", model__mlp="gelu", model__position="learned", model__bias="true",
                       data__tokenizer="bpe:300", training__max_steps=6)
        programs.run("gpt-export", "--checkpoint", run, "--output", self.root / "exported", check_code=0)
        words = ("--data", text, "--limit", 1, "--stride", 4)
        ours, theirs = (self.results(*words, model=model) for model in (run, self.root / "exported"))
        self.assertEqual(ours, theirs)
        self.assertLess(ours["text"]["values"]["loss"], math.log(300))
        self.assertGreater(ours["text"]["tokens"], 1000)
        # gpt-generate opens the same folder.
        write = lambda model: programs.run("gpt-generate", "--checkpoint", model, "--device", "cpu", "--prompt", "the", "--seed", 1, "-n", 20,
                                           check_code=0).stdout
        self.assertEqual(write(run), write(self.root / "exported"))

    def test_the_loss_of_a_text_is_that_of_gpt_train(self):
        """A split of whole windows, the first token of which is only context here and there."""
        whole, held_out, run = self.root / "whole.txt", self.root / "held_out.txt", self.root / "validated"
        whole.write_text((self.root / "text.txt").read_text()[:10 * (16 * 30 + 1)])
        programs.train(run, whole, training__max_steps=6)
        done = programs.run("gpt-train", "--eval-only", "--output_dir", run, "--data", whole, "--device", "cpu", check_code=0)
        self.assertIn("the model was trained on", self.evaluate("--data", whole, model=run).stderr)
        told = json.loads(programs.run("gpt-train", "--eval-only", "--json", "--output_dir", run, "--data", whole, "--device", "cpu",
                                       check_code=0).stdout)
        self.assertIn(f"val loss {told['val_loss']:.4f}", done.stdout)
        self.assertEqual((told["step"], told["tokens"]), (6, 480))
        loss, bits, tokens = re.search(r"val loss ([\d.]+) .*\| ([\d.]+) bits/byte \| (\d+) tokens", done.stdout).groups()
        self.assertEqual(int(tokens), 480)
        held_out.write_text(whole.read_text()[-481:])
        found = self.results("--data", held_out, model=run)["text"]
        self.assertEqual((found["tokens"], found["bytes"], found["first_token_predicted"]), (480, 480, False))
        self.assertAlmostEqual(found["values"]["loss"], float(loss), delta=1e-4)
        self.assertAlmostEqual(found["values"]["bits_per_byte"], float(bits), delta=1e-4)
        said = self.evaluate("--data", held_out, model=run)
        self.assertIn("note: the first token of each document is not predicted", said.stdout)
        self.assertNotIn("was trained on", said.stderr)

    def interrupted(self, words, output):
        """What the program said that Ctrl-C has stopped after its first results; nothing where it was done before."""
        command = ("--checkpoint", FIXTURES / "model", "--device", "cpu", "--threads", 1, *words, "--output", output)
        process = subprocess.Popen(programs.command("gpt-eval", *command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        while process.poll() is None and (not output.exists() or output.read_text().count("\n") < 20):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        shown, log = process.communicate(timeout=programs.HANGS)
        if process.returncode == 0:
            return None
        self.assertEqual((process.returncode, shown), (130, ""))
        return log

    def test_an_evaluation_that_was_stopped_goes_on(self):
        tasks, output = self.root / "many.jsonl", self.root / "results.jsonl"
        words = ("--tasks", f"lambada:{tasks}", "--batch-size", 1, "--json")
        log, lines = None, (FIXTURES / "lambada.jsonl").read_text()
        while not log:  # where this process slept for too long, all was done: then with more to do
            lines *= 16
            tasks.write_text(lines)
            output.unlink(missing_ok=True)
            log = self.interrupted(words, output)
        self.assertIn(f"the same command goes on from {output}", log)
        kept, count = output.read_text(), lines.count("\n")
        self.assertLess(kept.count("\n"), count)
        with open(output, "a") as file:
            file.write('{"task": "lamb')  # as a kill leaves it
        done = self.evaluate(*words, "--output", output)
        self.assertIn(f"lambada: going on with {kept.count(chr(10)) - 1:,} results of", done.stderr)
        self.assertEqual(json.loads(done.stdout), json.loads(self.evaluate(*words).stdout))
        self.assertTrue(output.read_text().startswith(kept))
        self.assertEqual(output.read_text().count("\n"), count + 1)
        # These are no results of another input, of another dtype or of another model.
        tasks.write_text(lines.replace("fox", "cat"))
        self.assert_refused(2, r"--output .*: lambada: result \d+ is not of this input", *words, "--output", output)
        self.assert_refused(2, "its results are of dtype float32", *words, "--output", output, "--dtype", "bfloat16")
        self.assert_refused(2, "results of another model", *words, "--output", output, model=self.root / "run")

    def test_wrong_input_is_refused_in_one_line(self):
        broken = self.root / "broken.jsonl"
        broken.write_text((FIXTURES / "piqa.jsonl").read_text().splitlines()[0] + "\n{\n")
        self.assert_refused(3, "broken.jsonl: line 2: it is not JSON", "--tasks", f"piqa:{broken}")
        self.assert_refused(2, "name what to evaluate on")
        self.assert_refused(3, "none.jsonl: No such file", *self.tasks("piqa"), f"arc:{self.root / 'none.jsonl'}")  # before piqa begins
        self.assert_refused(2, "--window 65: the model sees at most 64 tokens at once", "--window", 65, *self.tasks("piqa"))
        self.assert_refused(2, "--stride 9: tokens would be left out", "--window", 8, "--stride", 9, *self.tasks("piqa"))
        self.assert_refused(2, "arc is there already", *self.tasks("arc", "arc"))
        letters = self.root / "letters.txt"
        letters.write_text("the Äpfel")
        self.assert_refused(3, r"letters.txt: byte 4: 'Ä'", "--data", letters, model=self.root / "run")
        self.assert_refused(4, "no such checkpoint", *self.tasks("piqa"), model=self.root / "none")


class TasksOfARun(unittest.TestCase):
    """training.eval_tasks: what gpt-eval finds in the checkpoint of the same step."""

    TASKS = ("hellaswag", "lambada", "wikitext")
    LIMIT = 3

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.text = programs.write_text(self.root)

    def train(self, name, *words, tasks=TASKS, code=0, **options):
        tasks = ["--eval_tasks", ", ".join(f"{task}:{FIXTURES / task}.jsonl" for task in tasks)] if tasks else []
        options = {**programs.TINY, "data.text": self.text, "data.tokenizer": "bpe:300", "output_dir": self.root / name, "model.block_size": 256,
                   "training.max_steps": 4, "training.eval_interval": 2, "training.eval_task_limit": self.LIMIT, **options}
        return programs.run("gpt-train", *programs.flags(options), *tasks, *words, check_code=code)

    def lines(self, name):
        """(step, task) -> its line of metrics.jsonl."""
        return {(line["step"], line["task"]): line for line in programs.metrics(self.root / name) if "task" in line}

    def test_are_those_of_gpt_eval(self):
        done = self.train("one")
        self.assertRegex(done.stderr, r"Tasks evaluated with each validation: hellaswag \(3 examples\), lambada \(3 examples\), wikitext \(\d+ windows\)")
        self.assertRegex(done.stderr, r"step 4/4 \| hellaswag \| acc 0\.\d{4} ± 0\.\d{4} \| acc_norm")
        lines = self.lines("one")
        self.assertEqual(set(lines), {(step, task) for step in (2, 4) for task in self.TASKS})
        words = [word for task in self.TASKS for word in ("--tasks", f"{task}:{FIXTURES / task}.jsonl")]
        found = programs.run("gpt-eval", "--checkpoint", self.root / "one/ckpt.pt", "--device", "cpu", "--dtype", "float32", "--threads", 1,
                             "--limit", self.LIMIT, "--json", *words, check_code=0)
        for result in json.loads(found.stdout)["results"]:
            metrics = lines[4, result["task"]]["metrics"]
            for name, metric in result["metrics"].items():
                self.assertAlmostEqual(metrics[name], metric["value"], delta=1e-5 * abs(metric["value"]), msg=(result["task"], name))
                if metric.get("standard_error"):
                    self.assertAlmostEqual(metrics[name + "_error"], metric["standard_error"], delta=1e-4 * metric["standard_error"])
        # Training does not notice it.
        self.train("without", tasks=())
        self.assertEqual(programs.losses(self.root / "without"), programs.losses(self.root / "one"))

    def test_are_divided_among_processes(self):
        self.train("one", "--lanes", 2)
        self.train("two", "--lanes", 2, "--processes", 2)  # the same weights, to the bit
        one, two = self.lines("one"), self.lines("two")
        self.assertEqual(one.keys(), two.keys())
        for key, line in one.items():
            self.assertEqual(line["examples"], two[key]["examples"])
            for name, value in line["metrics"].items():
                self.assertAlmostEqual(two[key]["metrics"][name], value, delta=1e-5 * abs(value), msg=(key, name))

    def test_what_is_wrong_with_them_shows_before_the_first_step(self):
        broken = self.root / "piqa.jsonl"
        broken.write_text((FIXTURES / "piqa.jsonl").read_text().splitlines()[0] + "\n{\n")
        for code, message, words in ((3, "piqa.jsonl: line 2: it is not JSON", ("--eval_tasks", f"piqa:{broken}")),
                                     (2, "training.eval_tasks squad:x: write NAME:FILE", ("--eval_tasks", "squad:x")),
                                     (2, "arc is there already", ("--eval_tasks", f"arc:{FIXTURES}/arc.jsonl, arc:x"))):
            done = self.train("refused", *words, tasks=(), code=code)
            self.assertIn(message, done.stderr.splitlines()[-1])
            self.assertNotIn("step 1/", done.stderr)
        checks = programs.checks("--data", self.text, "--tokenizer", "byte", "--device", "cpu", "--block_size", 256, "--output_dir",
                                 self.root / "new", "--no-probe", "--eval_tasks", f"piqa:{broken}", check_code=1)
        self.assertEqual(checks["tasks"]["status"], "fail")


if __name__ == "__main__":
    unittest.main()
