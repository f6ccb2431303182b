"""Runs in a control group: tokens that are larger than it, and a neighbour that fills it."""

import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import control_group
import programs

LIMIT = 600_000_000
SIZES = {**programs.TINY, "training.use_amp": "false"}

# Takes 20 MB more every twentieth of a second, until it is ended. Where memory runs out, the kernel ends it before all others.
NEIGHBOUR = """
import pathlib, time
pathlib.Path('/proc/self/oom_score_adj').write_text('1000')
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

    def test_a_run_outlasts_a_neighbour_that_fills_the_group_for_a_moment(self):
        options = {**SIZES, "data.text": programs.write_text(self.folder), "training.max_steps": 10_000_000,
                   "training.eval_interval": 0, "training.log_interval": 100, "output_dir": self.run_folder}
        with control_group.limited_to(LIMIT) as enter:
            training = subprocess.Popen(programs.command("gpt-train", *programs.flags(options)), stderr=subprocess.PIPE,
                                        text=True, preexec_fn=enter)
            self.addCleanup(training.stderr.close)
            self.addCleanup(training.kill)
            self.lines_until("step      100/", training)
            waits = threading.Event()

            def watch():
                try:
                    self.lines_until("the run waits up to 10 seconds for it", training)
                finally:
                    waits.set()

            reader = threading.Thread(target=watch)
            reader.start()
            while not waits.is_set():  # the kernel ends a neighbour that was faster than the run's looks: then another one comes
                neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], preexec_fn=enter)
                while neighbour.poll() is None and not waits.wait(0.05):
                    pass
                neighbour.kill()
                neighbour.wait()
            reader.join()
            self.lines_until("There is memory again: the run goes on", training)
            training.terminate()
            said = training.stderr.read()
            self.assertEqual(training.wait(timeout=programs.HANGS), 143, said)

    def lines_until(self, wanted, training):
        for line in training.stderr:
            if wanted in line:
                return
        self.fail(f"the run ended without saying: {wanted}")


if __name__ == "__main__":
    unittest.main()
