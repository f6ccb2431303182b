"""A run of two processes on two machines, which are two network namespaces: the same weights as one, and a cable that is cut."""

import pathlib
import subprocess
import tempfile
import time
import unittest

import torch

import programs
import two_machines
from test_processes import FOUR_LANES


def weights(folder):
    return torch.load(folder / "ckpt.pt", weights_only=True)["model"]


class TwoMachines(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.options = {**programs.TINY, **FOUR_LANES, "data.text": programs.write_text(self.folder)}

    def start(self, machines, **options):
        """One process of the run on each machine; all see the same folders."""
        words = programs.flags({**self.options, "output_dir": self.folder / "run", **options})
        ranks = []
        for machine in machines:
            rank = subprocess.Popen(machine.command(*programs.command("gpt-train", *words)), env=machine.environment(),
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.addCleanup(rank.stderr.close)
            self.addCleanup(rank.kill)
            ranks.append(rank)
        return ranks

    def errors_of(self, ranks):
        return [rank.communicate(timeout=programs.HANGS)[1] for rank in ranks]

    def test_they_compute_the_run_of_one(self):
        with two_machines.joined_at("1gbit") as machines:
            ranks = self.start(machines)
            errors = self.errors_of(ranks)
            sent = [machine.bytes_sent() for machine in machines]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], errors)
        self.assertIn(f"they meet at {two_machines.ADDRESSES[0]}:{two_machines.PORT}", errors[0])
        self.assertNotIn("rank 1", errors[1])
        programs.train(self.folder / "one", self.options["data.text"], **FOUR_LANES)
        one, two = weights(self.folder / "one"), weights(self.folder / "run")
        self.assertEqual(one.keys(), two.keys())
        for name in one:
            self.assertTrue(torch.equal(one[name], two[name]), name)
        # Each sends half of the gradients to be added, and half of the sum.
        gradients = sum(4 * tensor.numel() for name, tensor in one.items() if name != "lm_head.weight")
        self.assertGreater(min(sent), gradients * programs.TINY["training.max_steps"])

    def test_each_misses_the_other_when_the_cable_is_cut(self):
        with two_machines.joined_at("1gbit") as machines:
            ranks = self.start(machines, **{"training.max_steps": 1_000_000, "training.eval_interval": 0,
                                            "training.checkpoint_interval": 20, "distributed.timeout": 3})
            while not (self.folder / "run" / "ckpt.pt").exists():
                self.assertEqual([rank.poll() for rank in ranks], [None, None])
                time.sleep(0.05)
            machines[1].unplug()
            errors = self.errors_of(ranks)
        self.assertEqual([rank.returncode for rank in ranks], [6, 6], errors)
        for own, other in ((0, 1), (1, 0)):
            self.assertRegex(errors[own], rf"error: (rank 1: )?rank {other} \(PID \d+ on .*\) has not been heard of for \d+ s \(distributed\.timeout\)")
        self.assertRegex(errors[0], r"the same command resumes after step \d+, which is saved in ")
        self.assertIn(f"the same command resumes from the last checkpoint in {self.folder}/run, if there is one", errors[1])


if __name__ == "__main__":
    unittest.main()
