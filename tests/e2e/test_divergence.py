"""A loss that jumps: the run skips the update, stops, or goes back to a checkpoint, and is the same run wherever it is killed."""

import pathlib
import random
import signal
import subprocess
import tempfile
import time
import unittest

import torch

import programs

NOISE_FROM, NOISE_STEPS, STEPS = 48, 3, 72

# In a run without noise nothing lies more than 3 deviations above the 8 updates before it, and the loss of the noise lies 60 above them.
OPTIONS = {"training.max_steps": STEPS, "training.checkpoint_interval": 4, "training.spike_window": 8, "training.spike_threshold": 12,
           "training.batch_size": 16, "training.learning_rate": 5e-3, "training.lr_schedule": "constant", "training.eval_interval": 0}


def write_noise(folder: pathlib.Path, text: pathlib.Path) -> pathlib.Path:
    """The characters of the text in any order: a loss that is finite, and higher than anything that the model has seen."""
    characters = list(text.read_text())
    random.Random(3).shuffle(characters)
    path = folder / "noise.txt"
    path.write_text("".join(characters))
    return path


class Divergence(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.root = pathlib.Path(cls.scratch.name)
        cls.text = programs.write_text(cls.root)
        noise = write_noise(cls.root, cls.text)
        cls.options = {**OPTIONS, "data.stages": f"[{{from: 0}}, {{from: {NOISE_FROM}, mix: {{{noise}: 1}}}}, "
                                                 f"{{from: {NOISE_FROM + NOISE_STEPS}}}]"}

    def train(self, name, check_code=0, **options):
        merged = {**self.options, **options}
        return programs.train(self.root / name, self.text, check_code=check_code,
                              **{key.replace(".", "__"): value for key, value in merged.items()})

    def values(self, name):
        return torch.load(self.root / name / "ckpt.pt", weights_only=True)

    def events(self, name):
        return [(record["step"], record["event"]) for record in programs.metrics(self.root / name) if "event" in record]

    def kill_after(self, name, step, **options):
        words = {**programs.TINY, **self.options, **options, "data.text": self.text, "output_dir": self.root / name}
        process = subprocess.Popen(programs.command("gpt-train", *programs.flags(words)), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        metrics = self.root / name / "metrics.jsonl"
        while process.poll() is None and not (metrics.exists() and f'"step":{step},' in metrics.read_text()):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=programs.HANGS)

    def test_off_applies_every_update(self):
        self.train("off")
        self.assertEqual(self.values("off")["skipped_steps"], 0)
        self.assertNotIn("spikes", self.values("off"))
        losses = programs.losses(self.root / "off")
        self.assertGreater(losses[NOISE_FROM + 1][0], 1.5 * losses[NOISE_FROM][0], "the noise is what it is to be")

    def test_skip_leaves_the_noise_out(self):
        done = self.train("skip", **{"training.on_divergence": "skip"})
        self.assertIn("1 update skipped as a spike because the loss or the gradient norm jumped", done.stderr)
        self.assertEqual(self.values("skip")["skipped_steps"], NOISE_STEPS)

    def test_stop_ends_with_the_updates_before(self):
        self.train("stop of two", check_code=5, **{"training.on_divergence": "stop", "distributed.lanes": 2, "distributed.processes": 2})
        done = self.train("stop", check_code=5, **{"training.on_divergence": "stop"})
        self.assertRegex(done.stderr, rf"step {NOISE_FROM + 1}: the loss is [\d.]+, and the median of the 8 accepted updates before it [\d.]+: "
                                      "the update was not applied, and the run ends; ")
        self.assertEqual(self.values("stop")["step"], NOISE_FROM + 1)
        self.assertEqual(self.values("stop")["optimizer"]["step"], NOISE_FROM)
        self.assertIn(NOISE_FROM + 1, [record["step"] for record in programs.metrics(self.root / "stop") if "loss" in record])

    @programs.long
    def test_a_run_that_goes_back_is_the_same_wherever_it_is_killed(self):
        options = {"training.on_divergence": "rollback", "training.rollback_lr_factor": 0.5, "training.async_checkpoint": "true"}

        def finish(moved_to):
            """All runs have the same output_dir, which is in the checkpoint."""
            done = self.train("run", **options)
            (self.root / "run").rename(self.root / moved_to)
            return done

        done = finish("whole")
        self.assertIn("went back to the weights of step", done.stderr)
        self.assertIn("Checkpoints are written while training goes on", done.stderr)
        rollback = self.values("whole")["rollback"]
        self.assertEqual((rollback["count"], rollback["learning_rate_factor"]), (1, 0.5))
        [(step, what)] = self.events("whole")
        self.assertEqual(step, NOISE_FROM + 1)
        self.assertIn(what, (self.root / "whole/report.html").read_text())
        whole = (self.root / "whole/ckpt.pt").read_bytes()
        for kills in ((6,), (NOISE_FROM,), (NOISE_FROM + 1,), (NOISE_FROM + 2, NOISE_FROM + 6), (14, NOISE_FROM + 5, STEPS - 6)):
            with self.subTest(kills=kills):
                name = "_".join(map(str, kills))
                for step in kills:
                    self.kill_after("run", step, **options)
                finish(name)
                self.assertTrue((self.root / name / "ckpt.pt").read_bytes() == whole)
                self.assertEqual(self.events(name), self.events("whole"))

    @programs.long
    def test_several_processes_go_back_together(self):
        lanes = {"distributed.lanes": 2, "training.on_divergence": "rollback"}
        self.train("one process", **lanes)
        self.assertEqual(self.values("one process")["rollback"]["count"], 1)
        for zero in (0, 2, 3):
            run = f"two processes, zero {zero}"
            self.train(run, **lanes, **{"distributed.processes": 2, "distributed.zero": zero})
            self.assertEqual(self.values("one process")["rollback"], self.values(run)["rollback"])
            for name, tensor in self.values("one process")["model"].items():
                self.assertTrue(torch.equal(tensor, self.values(run)["model"][name]), f"{run}: {name}")

    def test_a_time_between_checkpoints_is_refused(self):
        refused = self.train("time", check_code=2, **{"training.on_divergence": "rollback", "training.checkpoint_interval": "10 minutes"})
        self.assertIn("checkpoint_interval is 10 minutes; set it to a number of steps", refused.stderr)


if __name__ == "__main__":
    unittest.main()
