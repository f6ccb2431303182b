"""Runs in a control group: tokens that are larger than it, and a neighbour that fills it."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import control_group
import programs

LIMIT = 600_000_000
SIZES = {**programs.TINY, "training.use_amp": "false"}

# Takes 20 MB more every twentieth of a second, until it is ended.
NEIGHBOUR = """
import time
held = []
while True:
    held.append(bytearray(b'x') * 20_000_000)
    time.sleep(0.05)
"""


class ControlGroup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.run_folder = self.folder / "run"

    def test_tokens_larger_than_memory_train(self):
        tokens = self.folder / "tokens.bin"
        tokens.touch()
        os.truncate(tokens, 2_000_000_000)  # zeros that no disk holds
        options = {**SIZES, "data.bin": tokens, "model.vocab_size": 64, "training.max_steps": 4, "output_dir": self.run_folder}
        with control_group.limited_to(LIMIT) as enter:
            done = subprocess.run(programs.command("gpt-train", *programs.flags(options)), capture_output=True, text=True,
                                  timeout=programs.HANGS, preexec_fn=enter)
        self.assertEqual(done.returncode, 0, done.stderr)
        peak = max(line["peak_memory_mb"] for line in programs.metrics(self.run_folder) if "step_ms" in line)
        print(f"{peak:.0f} MB at the peak of a run on {tokens.stat().st_size / 1e6:.0f} MB of tokens")
        self.assertLess(peak, LIMIT / 1e6)

    def test_a_neighbour_that_fills_the_group_does_not_cost_the_run_its_updates(self):
        options = {**SIZES, "data.text": programs.write_text(self.folder), "training.max_steps": 10_000_000,
                   "training.eval_interval": 0, "training.log_interval": 100, "output_dir": self.run_folder}
        with control_group.limited_to(LIMIT) as enter:
            training = subprocess.Popen(programs.command("gpt-train", *programs.flags(options)), stderr=subprocess.PIPE,
                                        text=True, preexec_fn=enter)
            self.addCleanup(training.stderr.close)
            self.addCleanup(training.kill)
            for line in training.stderr:
                if "step      100/" in line:
                    break
            neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], preexec_fn=enter)
            said = training.stderr.read()
            status = training.wait(timeout=programs.HANGS)
            neighbour.kill()
            neighbour.wait()
        self.assertEqual(status, 7, said)
        self.assertRegex(said, r"error: out of memory after step \d+: other programs take it, and [\d.]+ [kM]B is free")
        saved = re.search(rf"Step (\d+) is saved in {self.run_folder}/ckpt.pt: the same command resumes from there", said)
        self.assertTrue(saved, said)
        resumed = programs.run("gpt-train", *programs.flags({**options, "training.max_steps": int(saved[1]) + 2}), check_code=0)
        self.assertIn(f"after step {int(saved[1]):,} of", resumed.stderr)


if __name__ == "__main__":
    unittest.main()
