"""What a run says: how it begins, what it logs, its samples, and how it closes."""

import math
import pathlib
import random
import re
import tempfile
import time
import unittest

import programs


class Reporting(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.folder.name)
        cls.run_folder = root / "run"
        options = {"training.max_steps": "auto", "training.epochs": 2, "training.log_interval": 2, "training.eval_interval": "1 epoch",
                   "training.sample_interval": "1 epoch", "training.sample_tokens": 7, "training.sample_prompt": "the"}
        cls.lines = programs.train(cls.run_folder, programs.write_text(root), **options).stderr.splitlines()
        steps = next(line for line in cls.lines if line.startswith("Run: "))
        cls.total = int(re.match(r"Run: ([\d,]+) steps \(([\d,]+) steps an epoch, 2 epochs\)", steps)[1].replace(",", ""))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def matching(self, pattern):
        return [found for line in self.lines if (found := re.fullmatch(pattern, line))]

    def test_it_announces_what_it_runs_on_and_with(self):
        for pattern in (r"Using CPU: .+, \d+ threads?, [\d.]+ GB", r"Precision: float32.*", r"✓ Using fused AdamW", r"Compiling model\.\.\.",
                        r"✓ Model compiled successfully \(default\) in [\d.]+ s",
                        r"Model: .+ parameters, .+ layers?, .+ heads?, width \d+, block \d+, vocabulary \d+ \(padded to \d+\)",
                        r"Data: .+: [\d,]+ training and [\d,]+ validation tokens, resident"):
            self.assertEqual(len(self.matching(pattern)), 1, pattern)

    def test_the_logged_steps_are_those_of_the_metrics(self):
        logged = {int(line[1]): float(line[2]) for line in self.matching(r"step +(\d+)/\d+ \| loss ([\d.]+) \| lr .+ \| norm .+ MB \| \w+ so far(?: \| \w+ left)?")}
        self.assertEqual(max(logged), self.total)
        written = {record["step"]: record["loss"] for record in programs.metrics(self.run_folder) if "loss" in record}
        self.assertEqual(list(written), list(range(1, self.total + 1)), "every step has a line, those that are not logged as well")
        for record in programs.metrics(self.run_folder):
            self.assertEqual("loss" in record, "lr" in record and "grad_norm" in record)
        self.assertEqual([record["step"] for record in programs.metrics(self.run_folder) if "step_ms" in record], sorted(logged))
        for step, loss in logged.items():
            self.assertAlmostEqual(loss, written[step], delta=6e-5)

    def test_every_line_of_the_metrics_has_its_time_and_the_tokens_seen(self):
        records = programs.metrics(self.run_folder)
        self.assertEqual(sorted(records, key=lambda record: (record["time"], record["tokens"], record["step"])), records)
        self.assertAlmostEqual(records[0]["time"], time.time(), delta=3600)
        at = {record["step"]: record["tokens"] for record in records}
        self.assertEqual(at[1], 2 * 4 * 16)
        self.assertEqual(at[self.total], 2 * at[self.total // 2], "epochs have the same samples")

    def test_each_epoch_is_closed_evaluated_and_sampled(self):
        epochs = self.matching(r"epoch (\d)/2 \| mean loss ([\d.]+) \| .+ \| \d+ sequences/s.*")  # and where it was slower, that
        self.assertEqual([line[1] for line in epochs], ["1", "2"])
        self.assertLess(float(epochs[1][2]), float(epochs[0][2]))
        evaluations = self.matching(r"step +(\d+)/\d+ \| val loss ([\d.]+)(?: ± [\d.]+)? \| perplexity ([\d.]+) \| .+")
        self.assertEqual([int(line[1]) for line in evaluations], [self.total // 2, self.total])
        for line in evaluations:
            self.assertAlmostEqual(math.log(float(line[3])), float(line[2]), delta=6e-3)
        samples = [int(line[1]) for line in self.matching(r"sample at step (\d+):")]
        self.assertEqual(samples, [self.total // 2, self.total])
        for step in samples:
            texts = list(self.run_folder.glob(f"samples/*{step}*"))
            self.assertEqual(len(texts), 1, step)
            self.assertTrue(texts[0].read_text().startswith("the"))

    def test_it_closes_with_the_times_and_the_next_command(self):
        table = self.lines[self.lines.index(next(line for line in self.lines if line.split() == ["steps", "time/step", "tokens/s"])):]
        rows = [found for line in table if (found := re.match(r"  (\d+)(?:-(\d+))?(?: \(start\))? +[\d.]+ m?s +[\d.]+k?", line))]
        first = 1
        for row in rows:  # they follow each other from the first step to the last
            self.assertEqual(int(row[1]), first)
            first = int(row[2] or row[1]) + 1
        self.assertEqual(first, self.total + 1)
        self.assertTrue(any(line.startswith("  after the start ") for line in table))
        self.assertEqual(len(self.matching(r"Best val loss [\d.]+: .+/ckpt_best\.pt")), 1)
        self.assertEqual(len(self.matching(rf"✓ {self.total} steps done in .+ of training: .+/ckpt\.pt")), 1)
        self.assertEqual(self.lines[-1], f"Next: gpt-generate --checkpoint {self.run_folder}")


class Memorizing(unittest.TestCase):
    def test_a_validation_loss_that_rises_is_said_once(self):
        """Letters at random, of which nothing can be learned but these."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            letters = random.Random(1)
            (root / "text.txt").write_text("".join(letters.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(600)))
            done = programs.train(root / "run", root / "text.txt", model__dropout=0, training__max_steps=200, training__eval_interval=20,
                                  data__validation_fraction=0.2)
            said = re.findall(r"warning: step \d+: the validation loss is [\d.]+ % above its best \([\d.]+, \d+ evaluations? ago\): "
                              r"the model may be memorizing", done.stderr)
            self.assertEqual(len(said), 1, done.stderr)
            self.assertIn("training.patience ends a run where it gets no better", done.stderr)
            self.assertIn("Next: gpt-generate --checkpoint " + str(root / "run/ckpt_best.pt"), done.stderr)



if __name__ == "__main__":
    unittest.main()
