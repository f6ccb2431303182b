"""Schedules of the learning rate: a longer run along wsd goes on from before the decay; a plateau lowers the rate, and is resumed to the bit."""

import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import torch

import programs
from checkpoints import load

WSD = {"training.lr_schedule": "wsd", "training.decay_fraction": 0.25, "training.warmup_steps": 3, "training.max_steps": 16,
       "training.eval_interval": 4}


def rates(run):
    return {record["step"]: record["lr"] for record in programs.metrics(run) if "lr" in record}


class Schedules(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        self.text = programs.write_text(self.root)

    def train(self, name, check_code=0, **options):
        return programs.train(self.root / name, self.text, check_code=check_code,
                              **{key.replace(".", "__"): value for key, value in options.items()})

    def assert_same_state(self, one, other):
        one, other = load(one), load(other)
        for key in ("model", "optimizer", "rng"):
            torch.testing.assert_close(one[key], other[key], rtol=0, atol=0)
        for key in ("step", "data", "best_val_loss", "evaluated_step", "evaluations_since_best"):
            self.assertEqual(one[key], other[key], key)

    def test_a_longer_run_is_the_one_that_was_so_long_from_the_beginning(self):
        first = self.train("grown", **WSD)
        self.assertIn("then constant, and after step 12 down to 1e-05 (1-sqrt)", first.stderr)
        grown, stable = self.root / "grown", self.root / "grown/ckpt_stable_00000012.pt"
        self.assertEqual(load(stable)["step"], 12)
        self.assertEqual(sorted(p.name for p in grown.glob("ckpt*")), ["ckpt.pt", "ckpt_best.pt", stable.name])
        self.assertLess(rates(grown)[16], rates(grown)[13])

        words = programs.flags({**programs.TINY, **WSD, "training.max_steps": 32, "data.text": self.text, "output_dir": grown})
        found = programs.checks(*words, "--no-probe")
        self.assertIn(f"{stable} is at step 12 of 32: the same command continues", found["output folder"]["detail"])
        longer = self.train("grown", **{**WSD, "training.max_steps": 32})
        self.assertIn("The run is longer now: it goes on without a jump of the learning rate, from before the decay, "
                      f"{stable} (step 12); what lies beyond it is now in {grown}/set_aside/1", longer.stderr)
        self.assertNotIn("would have been", longer.stderr)
        self.assertEqual(load(grown / "set_aside/1/ckpt.pt")["step"], 16)
        self.assertEqual(sorted(p.name for p in grown.glob("ckpt*")), ["ckpt.pt", "ckpt_best.pt", "ckpt_stable_00000024.pt"])

        self.train("whole", **{**WSD, "training.max_steps": 32})
        for name in ("ckpt_stable_00000024.pt", "ckpt.pt"):
            self.assert_same_state(grown / name, self.root / "whole" / name)
        self.assertEqual(rates(grown), rates(self.root / "whole"))
        self.assertEqual(programs.losses(grown), programs.losses(self.root / "whole"))

    def test_a_run_that_is_killed_while_it_grows_goes_on(self):
        options = {**WSD, "training.max_steps": 32}
        self.train("grown", **WSD)
        words = {**programs.TINY, **options, "data.text": self.text, "output_dir": self.root / "grown"}
        process = subprocess.Popen(programs.command("gpt-train", *programs.flags(words)), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        metrics = self.root / "grown/metrics.jsonl"
        while process.poll() is None and not ('"step":14,' in metrics.read_text() and '"step":16,' not in metrics.read_text()):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=programs.HANGS)
        resumed = self.train("grown", **options)
        self.assertNotIn("The run is longer now", resumed.stderr, "it has gone back already")
        self.train("whole", **options)
        self.assert_same_state(self.root / "grown/ckpt.pt", self.root / "whole/ckpt.pt")
        finished = self.train("grown", **options)
        self.assertIn("is finished", finished.stderr)

    def test_without_that_checkpoint_a_line_says_how_far_the_rate_jumps(self):
        self.train("run", **WSD)
        (self.root / "run/ckpt_stable_00000012.pt").unlink()
        longer = self.train("run", **{**WSD, "training.max_steps": 32})
        self.assertIn("The learning rate of step 17 is 0.01, and would have been 1e-05 without the changes", longer.stderr)
        self.train("cosine", **{"training.max_steps": 8})
        self.assertRegex(self.train("cosine", **{"training.max_steps": 12}).stderr,
                         "The learning rate of step 9 is 0.00[0-9]*, and would have been 1e-05 without the changes")

    def test_a_damaged_one_is_refused_with_what_to_do(self):
        self.train("run", **WSD)
        stable = self.root / "run/ckpt_stable_00000012.pt"
        stable.write_bytes(stable.read_bytes()[:1000])
        refused = self.train("run", check_code=4, **{**WSD, "training.max_steps": 32})
        self.assertIn("remove it, and the run goes on from ckpt.pt with a jump of the learning rate", refused.stderr)
        self.assertEqual(load(self.root / "run/ckpt.pt")["step"], 16)
        stable.unlink()
        self.train("run", **{**WSD, "training.max_steps": 32})

    @programs.long
    def test_several_processes_go_back_together(self):
        lanes = {**WSD, "distributed.lanes": 2}
        for name, processes in (("one", 1), ("two", 2)):
            self.train(name, **lanes, **{"distributed.processes": processes})
            self.train(name, **{**lanes, "distributed.processes": processes, "training.max_steps": 32})
        torch.testing.assert_close(load(self.root / "one/ckpt.pt")["model"], load(self.root / "two/ckpt.pt")["model"], rtol=0, atol=0)

    def test_a_plateau_lowers_the_rate_wherever_the_run_is_stopped(self):
        plateau = {"training.lr_schedule": "plateau", "training.plateau_factor": 0.5, "training.plateau_patience": 1,
                   "training.plateau_threshold": 0.3, "training.eval_interval": 2, "training.min_lr": 1e-3, "training.warmup_steps": 2}
        done = self.train("whole", **plateau)
        self.assertIn("the learning rate is 0.005 from now on, because the validation loss has stopped improving", done.stderr)
        self.assertIn("the learning rate is 0.005 from now on", (self.root / "whole/report.html").read_text())
        whole = load(self.root / "whole/ckpt.pt")
        self.assertLess(whole["plateau"]["factor"], 1)
        for stop in (6, 8, 14):  # where an evaluation is due, as the end of a run is evaluated too
            with self.subTest(stop=stop):
                shutil.rmtree(self.root / "parts", ignore_errors=True)
                self.train("parts", **plateau, **{"training.max_steps": stop})
                self.train("parts", **plateau)
                self.assertEqual(load(self.root / "parts/ckpt.pt")["plateau"], whole["plateau"])
                self.assert_same_state(self.root / "parts/ckpt.pt", self.root / "whole/ckpt.pt")
                self.assertEqual(rates(self.root / "parts"), rates(self.root / "whole"))
        lanes = {**plateau, "distributed.lanes": 2}
        self.train("one", **lanes)
        self.train("two", **lanes, **{"distributed.processes": 2})
        self.assertEqual(load(self.root / "one/ckpt.pt")["plateau"], load(self.root / "two/ckpt.pt")["plateau"])
        self.assertEqual(rates(self.root / "one"), rates(self.root / "two"))


if __name__ == "__main__":
    unittest.main()
