"""A run of two processes on two machines, which are two network namespaces: the same weights as one, and a cable that is cut."""

import subprocess
import time
import unittest

import programs
import ranks
import two_machines
from test_processes import FOUR_LANES


class TwoMachines(ranks.DividedRun):
    RUN = FOUR_LANES

    def start(self, machines, **options):
        """One process of the run on each machine; all see the same folders."""
        words = programs.flags({**programs.TINY, **self.RUN, "data.text": self.text, "output_dir": self.folder / "run", **options})
        processes = []
        for machine in machines:
            process = subprocess.Popen(machine.command(*programs.command("gpt-train", *words)), env=machine.environment(),
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.stderr.close)
            self.addCleanup(process.kill)
            processes.append(process)
        return processes

    def errors_of(self, processes):
        return [process.communicate(timeout=programs.HANGS)[1] for process in processes]

    def test_they_compute_the_run_of_one(self):
        with two_machines.joined_at("1gbit") as machines:
            processes = self.start(machines)
            errors = self.errors_of(processes)
            sent = [machine.bytes_sent() for machine in machines]
        self.assertEqual([process.returncode for process in processes], [0, 0], errors)
        self.assertIn(f"they meet at {two_machines.ADDRESSES[0]}:{two_machines.PORT}", errors[0])
        self.assertNotIn("rank 1", errors[1])
        self.train("one")
        self.assert_same_weights("one", "run")
        # Each sends half of the gradients to be added, and half of the sum.
        gradients = sum(4 * tensor.numel() for name, tensor in self.state("one")["model"].items() if name != "lm_head.weight")
        self.assertGreater(min(sent), gradients * programs.TINY["training.max_steps"])

    def test_each_misses_the_other_when_the_cable_is_cut(self):
        with two_machines.joined_at("1gbit") as machines:
            processes = self.start(machines, **{"training.max_steps": 1_000_000, "training.eval_interval": 0,
                                                "training.checkpoint_interval": 20, "distributed.timeout": 3})
            # The second file: a file is there a moment before the run counts it as saved.
            files, checkpoint = set(), self.folder / "run" / "ckpt.pt"
            while len(files) < 2:
                self.assertEqual([process.poll() for process in processes], [None, None])
                if checkpoint.exists():
                    files.add(checkpoint.stat().st_mtime_ns)
                time.sleep(0.05)
            machines[1].unplug()
            errors = self.errors_of(processes)
        self.assertEqual([process.returncode for process in processes], [6, 6], errors)
        for own, other in ((0, 1), (1, 0)):
            self.assertRegex(errors[own], rf"error: (rank 1: )?rank {other} \(PID \d+ on .*\) has not been heard of for \d+ s \(distributed\.timeout\)")
        self.assertRegex(errors[0], r"the same command resumes after step \d+, which is saved in ")
        self.assertIn(f"the same command resumes from the last checkpoint in {self.folder}/run, if there is one", errors[1])


if __name__ == "__main__":
    unittest.main()
