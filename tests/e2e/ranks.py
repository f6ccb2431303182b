"""A run of several processes that goes on while a test does something to one of them."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import torch

import programs


# A task that a run can be evaluated on.
TASK = programs.SOURCE / "tests/fixtures/eval/piqa.jsonl"


def begin(test, folder, text, **options):
    """gpt-train with these options beside TINY, where __ stands for a dot; the test ends it."""
    merged = {**programs.TINY, "data.text": text, "output_dir": folder}
    merged.update({key.replace("__", "."): value for key, value in options.items()})
    run = subprocess.Popen(programs.command("gpt-train", *programs.flags(merged)), stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    test.addCleanup(run.stderr.close)
    test.addCleanup(run.wait)
    test.addCleanup(run.kill)
    return run


def children_of(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def by_rank(run):
    """The PIDs of a run's processes."""
    def rank_of(pid):
        variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return int(next(v for v in variables if v.startswith(b"RANK=")).split(b"=")[1])
    return {rank_of(pid): pid for pid in children_of(run.pid)}


def await_checkpoint(test, folder, run):
    """Until the run has saved something; then its processes by rank."""
    while not (folder / "ckpt.pt").exists():
        test.assertIsNone(run.poll(), run.stderr.read() if run.poll() is not None else "")
        time.sleep(0.05)
    return by_rank(run)


class DividedRun(unittest.TestCase):
    """Tests of runs with the options RUN, which several processes compute."""
    RUN = {}

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.text = programs.write_text(self.folder)

    def train(self, name, check_code=0, **options):
        return programs.train(self.folder / name, self.text, check_code=check_code, **{**self.RUN, **options})

    def state(self, name):
        return torch.load(self.folder / name / "ckpt.pt", weights_only=True)

    def assert_same_weights(self, one, other):
        a, b = self.state(one)["model"], self.state(other)["model"]
        self.assertEqual(a.keys(), b.keys())
        for name in a:
            self.assertTrue(torch.equal(a[name], b[name]), name)

    def assert_same_files(self, one, other):
        """In the folder; and the same text in each sample."""
        files = lambda folder: sorted(path.name for path in (self.folder / folder).iterdir())
        self.assertEqual(files(one), files(other))
        samples = lambda folder: [path.read_text() for path in sorted((self.folder / folder / "samples").glob("*"))]
        self.assertEqual(samples(one), samples(other))

    def send_signal(self, name, number, rank, **options):
        """To this process of a run that has saved something. Its PID, the run's status, and what the run says."""
        run = begin(self, self.folder / name, self.text, **{**self.RUN, **options})
        pid = await_checkpoint(self, self.folder / name, run)[rank]
        os.kill(pid, number)
        _, errors = run.communicate(timeout=programs.HANGS)
        return pid, run.returncode, errors

    def stop_and_go_on(self, name, rank, goes_on=None, undisturbed=None, **options):
        """A run that a signal to this process stops, and that goes on for five steps; and `undisturbed NAME`, which has as many at once. Of
        the two, each may be by other processes: these are their options where they are not the first ones."""
        often = {"training.eval_interval": 0, "training.sample_interval": 0, "training.checkpoint_interval": 5}
        _, status, errors = self.send_signal(name, signal.SIGINT, rank, **options, **often, **{"training.max_steps": 100000})
        self.assertEqual(status, 130, errors)
        self.assertNotIn("error", errors)
        stopped = re.search(r"Stopped by SIGINT after step (\d+): saved", errors)
        self.assertIsNotNone(stopped, errors)
        for folder, others in ((name, goes_on), (f"undisturbed {name}", undisturbed)):
            self.train(folder, **{**options, **(others or {})}, **often, training__max_steps=int(stopped.group(1)) + 5)

    def assert_a_killed_process_is_named(self, **options):
        pid, status, errors = self.send_signal("run", signal.SIGKILL, 1, **{"training.max_steps": 100000, "training.checkpoint_interval": 5,
                                                                            "training.sample_interval": 0, **options})
        self.assertEqual(status, 6, errors)
        self.assertRegex(errors, rf"error: rank 1 \(PID {pid} on .*\) has gone: its connection closed")
        programs.run("gpt-diagnose", "--checkpoint", self.folder / "run" / "ckpt.pt", "--no-probe", check_code=0)

    def assert_refused(self, words, **options):
        done = self.train("x", check_code=2, **options)
        self.assertIn(words, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
