"""Checkpoints of the first format are read by all programs, and their runs go on."""

import json
import pathlib
import re
import shutil
import tempfile
import unittest

import format_1
import programs
from checkpoints import load

EXPECTED = json.loads(format_1.CHECKPOINT.with_suffix(".json").read_text())


class Format1(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        format_1.write_texts(self.root)
        (self.root / "run").mkdir()
        shutil.copy(format_1.CHECKPOINT, self.root / "run/ckpt.pt")

    def train(self, *words, check_code=0):
        return programs.run("gpt-train", *programs.flags(format_1.OPTIONS), *words, cwd=self.root, check_code=check_code)

    def test_a_run_goes_on(self):
        said = self.train().stderr
        self.assertIn(f"after step {format_1.STEP} of {format_1.STEPS}", said)
        self.assertEqual(said.count("This run began with an older version: from here on its dropout masks follow from its seed"), 1)
        self.assertIn("Stage from step 90", said)
        losses = programs.losses(self.root / "run")
        self.assertEqual([step for step in losses if isinstance(step, int)], list(range(format_1.STEP + 1, format_1.STEPS + 1)))
        self.assertLess(losses["val", format_1.STEPS], EXPECTED["val_loss"])
        before, after = load(format_1.CHECKPOINT), load(self.root / "run/ckpt.pt")
        self.assertEqual(after["step"], format_1.STEPS)
        self.assertEqual(after["model"].keys(), before["model"].keys())
        self.assertEqual(after["optimizer"]["state"].keys(), before["optimizer"]["state"].keys())

    def test_its_loss_is_what_was_measured_then(self):
        done = self.train("--eval-only")
        loss = float(re.search(r"val loss ([\d.]+)", done.stdout)[1])
        self.assertAlmostEqual(loss, EXPECTED["val_loss"], delta=1e-4)

    def test_its_text_is_what_was_generated_then(self):
        done = programs.run("gpt-generate", "--checkpoint", format_1.CHECKPOINT, *format_1.PROMPT, check_code=0)
        self.assertEqual(done.stdout, EXPECTED["text"])

    def test_it_is_found_sound(self):
        found = programs.checks("--checkpoint", format_1.CHECKPOINT, "--no-probe", check_code=0)
        self.assertIn("every hash matches, and its parts fit together", found["checkpoint"]["detail"])


if __name__ == "__main__":
    unittest.main()
