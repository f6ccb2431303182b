"""What scripts/measure_gpu.sh will measure on a GPU, rehearsed on the CPU: some of its parts, in a checkout of links to this one."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import programs


class MeasureGpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "a checkout")
        self.out = pathlib.Path(folder.name, "out")
        shutil.copytree(programs.SOURCE / "scripts", self.root / "scripts")
        for name in ("configs", "data", ".deps"):
            (self.root / name).symlink_to(programs.SOURCE / name)
        (self.root / "build").symlink_to(programs.BIN.parent)

    def measure(self, *words, parts=""):
        return subprocess.run(["scripts/measure_gpu.sh", self.out, *words], cwd=self.root, env={**os.environ, "PARTS": parts, "PATIENCE": "20"},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def summary_of(self, command, parts):
        """What it says of each part, by its name, and its other lines."""
        done = self.measure("cpu", command, parts=f"^({parts})$")
        self.assertEqual(done.returncode, 0, done.stdout)
        summary = (self.out / "summary.txt").read_text()
        found = dict(re.findall(r"^([a-z0-9_-]+) +((?:done|STOPPED|FAILED|left out).*)$", summary, re.MULTILINE))
        self.assertEqual(len(found), len(parts.split("|")), summary)
        return found, summary

    def test_speeds_losses_and_times_are_in_the_summary(self):
        speeds = ("gpt2-max-autotune", "gpt2-pytorch-eager", "char-batch-8-default", "char-batch-8-reduce-overhead")
        others = ("first-update", "losses-start", "losses-full")
        found, summary = self.summary_of("all", "|".join(speeds + others))
        for name in speeds + others:
            self.assertRegex(found[name], "^done in ", summary)
        for name in speeds:
            self.assertRegex(found[name], r", [1-9]\d* tokens/s$")
        self.assertNotRegex(summary, "FAILED|WRONG")
        self.assertRegex(summary, r"(?m)^from the start of gpt-train to its first update, gpt2: \d+ ms ")
        self.assertRegex(summary, r"(?m)^char-batch-8-reduce-overhead is \d+\.\d\d times as fast as char-batch-8-default ")
        self.assertRegex(summary, r"(?m)^float32 .*: the losses of 100 updates \(wanted: 100\) differ by at most [\d.e-]+ % \(wanted: 1\): good$")
        self.assertTrue(self.out.with_name("out.tar.gz").exists())

    def test_a_part_that_fails_is_named_with_its_reason_and_the_others_go_on(self):
        (self.root / "scripts/pytorch_baseline.py").write_text("raise SystemExit('no GPU to be found')\n")
        found, summary = self.summary_of("sizes", "gpt2_medium-pytorch-blocks|gpt2_large-max-autotune")
        self.assertEqual(found["gpt2_medium-pytorch-blocks"], "FAILED with exit status 1: no GPU to be found")
        self.assertRegex(found["gpt2_large-max-autotune"], r"^done in .* tokens/s$", summary)

    def test_unknown_words_are_refused_in_one_line(self):
        self.assertEqual(self.measure("gpu").stdout, "error: unknown device 'gpu': the second word is cuda or cpu\n")
        done = self.measure("cpu", "everything")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"^error: unknown command 'everything': the third word is one of all sizes tests [^\n]*\n$")
        self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main()
