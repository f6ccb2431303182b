"""A model for which no single process has the memory: four have it, however they divide it, and one without a limit goes on from there."""

import json
import os
import resource
import shutil
import subprocess

import programs

# About 25 million parameters, which take 400 MB with gradients and moments, and an update of a second.
LARGE = {**programs.TINY, "model.n_layer": 8, "model.n_head": 8, "model.n_embd": 512, "model.block_size": 32, "training.batch_size": 1,
         "training.gradient_accumulation_steps": 4, "training.max_steps": 2, "training.eval_interval": 0}
SMALL = {**LARGE, "model.n_embd": 64, "training.max_steps": 1_000_000}
FOUR = {"distributed.processes": 4}
MESHES = ({"distributed.zero": 3}, {"distributed.pipeline_parallel": 4}, {"distributed.tensor_parallel": 4},
          {"distributed.tensor_parallel": 2, "distributed.pipeline_parallel": 2})
NO_MEMORY = 7  # exit status
MB = 1 << 20


def limited_to(data):
    """Limits a process to so many bytes of data, and the stacks of its threads, which count as data, to 1 MB: the more processes speak to each
    other, the more threads each has."""
    def limit():
        resource.setrlimit(resource.RLIMIT_STACK, (MB, MB))
        resource.setrlimit(resource.RLIMIT_DATA, (data, data))
    return limit


class LargerModels(programs.WithText):
    def train(self, options, limit=None):
        words = programs.flags({**options, "data.text": self.text, "output_dir": self.root / "run"})
        return subprocess.run(programs.command("gpt-train", *words), capture_output=True, text=True, timeout=programs.HANGS,
                              preexec_fn=limit and limited_to(limit))

    def data_of_processes(self):
        """Of the one that has most, with a model that needs next to nothing, as the kernel counts it."""
        words = programs.flags({**SMALL, **FOUR, **MESHES[-1], "data.text": self.text, "output_dir": self.root / "small"})
        _, *data = programs.memory_after_two_steps(*words, field="VmData", limit=limited_to(1 << 45))
        self.assertEqual(len(data), 4)
        return max(data)

    @programs.long
    def test_four_processes_train_what_one_cannot_hold(self):
        values = programs.checks(*programs.flags({**LARGE, "data.text": self.text}), "--no-probe")["memory of the run"]["values"]
        limit = int(self.data_of_processes() + 0.6 * (values["needed_bytes"] - values["program_bytes"]))
        alone = self.train(LARGE, limit)
        self.assertEqual(alone.returncode, NO_MEMORY, alone.stderr)
        for mesh in MESHES if os.environ.get("GPT_ALL_TESTS") else MESHES[::3]:  # one that divides each layer's state, and one in both ways
            with self.subTest(mesh):
                divided = self.train({**LARGE, **FOUR, **mesh}, limit)
                self.assertEqual(divided.returncode, 0, divided.stderr)
                gone_on = self.train({**LARGE, "training.max_steps": 3})
                self.assertEqual(gone_on.returncode, 0, gone_on.stderr)
                losses = [json.loads(line) for line in (self.root / "run/metrics.jsonl").read_text().splitlines()]
                self.assertEqual([record["step"] for record in losses if "step_ms" in record], [1, 2, 3])
                shutil.rmtree(self.root / "run")
