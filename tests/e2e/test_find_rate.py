"""learning_rate: auto and --find-lr: the rate is found once, the run is the one with that number given by hand, and nothing else remains."""

import json
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

import torch

import programs
from checkpoints import load


def found_in(text):
    return float(re.search(r"Learning rate ([\d.e-]+): of runs of ", text).group(1))


class FindRate(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        self.text = programs.write_text(self.root)

    def train(self, name, check_code=0, words=(), **options):
        merged = {**programs.TINY, "data.text": self.text, "output_dir": self.root / name}
        merged.update({key.replace("__", "."): value for key, value in options.items()})
        return programs.run("gpt-train", *programs.flags(merged), *words, check_code=check_code)

    def start(self, name, **options):
        words = {**programs.TINY, "data.text": self.text, "output_dir": self.root / name, "training.learning_rate": "auto", **options}
        return subprocess.Popen(programs.command("gpt-train", *programs.flags(words)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)

    def assert_same_run(self, one, other):
        self.assertEqual(programs.losses(self.root / one), programs.losses(self.root / other))
        one, other = load(self.root / one / "ckpt.pt"), load(self.root / other / "ckpt.pt")
        for key in ("model", "optimizer", "rng"):
            torch.testing.assert_close(one[key], other[key], rtol=0, atol=0)
        for key in ("step", "data", "best_val_loss"):
            self.assertEqual(one[key], other[key], key)
        differing = {key for key in one["config"]["training"] if one["config"]["training"][key] != other["config"]["training"][key]}
        self.assertEqual(differing, set())

    def test_the_run_is_the_one_with_the_number_given_by_hand(self):
        """With LibTorch's operators too, whose dropout is drawn from the process's generators."""
        for name, options in (("ours", {}), ("math", {"training.use_compile": "false", "training.attention": "math"})):
            with self.subTest(name):
                done = self.train(f"{name} auto", **{"training.learning_rate": "auto", **options})
                rate = found_in(done.stderr)
                self.train(f"{name} by hand", **{"training.learning_rate": rate, **options})
                self.assert_same_run(f"{name} auto", f"{name} by hand")
                folder = self.root / f"{name} auto"
                self.assertEqual(load(folder / "ckpt.pt")["config"]["training"]["learning_rate"], rate)
                self.assertRegex((folder / "effective_config.yaml").read_text(), rf"learning_rate: {rate:g}")
                self.assertEqual([record["step"] for record in programs.metrics(folder) if "lr" in record], list(range(1, 25)))

    def test_it_is_found_once(self):
        first = self.train("run", **{"training.learning_rate": "auto", "training.max_steps": 12})
        rate = found_in(first.stderr)
        second = self.train("run", **{"training.learning_rate": "auto"})
        self.assertNotIn("Looking for the learning rate", second.stderr)
        self.assertEqual(load(self.root / "run/ckpt.pt")["config"]["training"]["learning_rate"], rate)
        again = self.train("again", words=["--find-lr"], **{"training.max_steps": 12})
        self.assertEqual(found_in(again.stderr), rate, "the same command finds the same")

    def test_find_lr_shows_what_it_finds_and_begins_no_run(self):
        done = self.train("shown", words=["--find-lr", "--json"])
        rate = found_in(done.stderr)
        found = json.loads(done.stdout)
        self.assertAlmostEqual(found["learning_rate"], rate, delta=0.05 * rate)
        self.assertGreater(len(found["trials"]), 2)
        self.assertEqual(set(found["trials"][0]), {"updates", "learning_rate", "loss"})
        self.assertIn(f"Next: the same command without --find-lr, with --learning_rate {rate:.3g}", done.stderr)
        self.assertEqual(sorted(path.name for path in (self.root / "shown").iterdir()), ["learning_rate.svg", "train.log"])
        svg = (self.root / "shown/learning_rate.svg").read_text()
        self.assertIn(f"Learning rate {rate:.2g}", xml.etree.ElementTree.fromstring(svg).find("{*}text").text)
        self.train("shown", **{"training.learning_rate": rate})
        refused = self.train("shown", words=["--find-lr"], check_code=2)
        self.assertIn("holds one already; name a free folder", refused.stderr)
        refused = self.train("shown", words=["--find-lr", "--restart"], check_code=2)
        self.assertIn("--find-lr trains no run", refused.stderr)

    def test_the_trials_tell_how_long_a_run_of_a_time_is(self):
        smallest = {"model.n_layer": 1, "training.gradient_accumulation_steps": 1, "training.max_steps": "auto"}
        done = self.train("timed", words=["--find-lr"], **{**smallest, "training.max_time": "1 hour"})
        updates = re.search(r", and one of ([\d,]+) updates wants 0\.\d+ times that", done.stderr)
        self.assertGreater(int(updates[1].replace(",", "")), 10_000, "an hour is enough for far more")

    def test_a_signal_ends_it(self):
        for stop, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            name = f"stopped by {stop.name}"
            process = self.start(name, **{"training.max_steps": 5000, "training.batch_size": 16})
            log = self.root / name / "train.log"
            while process.poll() is None and not (log.exists() and "Looking for the learning rate" in log.read_text()):
                time.sleep(0.01)
            process.send_signal(stop)
            _, errors = process.communicate(timeout=programs.HANGS)
            self.assertEqual(process.returncode, code, errors)
            self.assertIn("stopped while it looked for a learning rate; the run had not begun", errors)
            self.assertFalse((self.root / name / "ckpt.pt").exists())

    @programs.long
    def test_several_processes_find_the_same(self):
        lanes = {"training.learning_rate": "auto", "distributed.lanes": 2}
        one = self.train("one", **lanes)
        two = self.train("two", **lanes, **{"distributed.processes": 2, "distributed.zero": 1})
        self.assertEqual(found_in(one.stderr), found_in(two.stderr))
        torch.testing.assert_close(load(self.root / "one/ckpt.pt")["model"], load(self.root / "two/ckpt.pt")["model"], rtol=0, atol=0)

    def test_a_lowest_rate_above_all_is_refused(self):
        refused = self.train("refused", check_code=2, **{"training.learning_rate": "auto", "training.min_lr": 0.5})
        self.assertIn("training.min_lr is 0.5, which leaves no learning rates to choose from; lower it", refused.stderr)


if __name__ == "__main__":
    unittest.main()
