"""gpt-diagnose's estimate of a run's memory against the peak of the run itself, as the kernel counts it."""

import pathlib
import random
import re
import tempfile
import unittest

import programs

UNITS = {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
GPT2 = {"model.norm": "layernorm", "model.mlp": "gelu", "model.position": "learned", "model.bias": "true"}
# Runs of different kinds, each of a few hundred megabytes beside what the program itself takes.
RUNS = {
    "the default architecture": {},
    "dropout": {"model.dropout": 0.1, "training.batch_size": 8},
    "GPT-2": GPT2,
    "a large vocabulary": {**GPT2, "model.vocab_size": 16384, "training.batch_size": 8},
    "a large model": {"model.n_layer": 8, "model.n_embd": 512, "training.batch_size": 1, "model.block_size": 64},
    "long sequences": {"model.block_size": 1024, "training.batch_size": 4},
    "many small layers": {"model.n_layer": 16, "model.n_embd": 128},
    "gradient checkpointing": {"training.gradient_checkpointing": "true", "training.batch_size": 64},
    "accumulation": {"training.gradient_accumulation_steps": 3, "model.n_embd": 320},
    "grouped heads, label smoothing, untied": {"model.n_kv_head": 2, "training.label_smoothing": 0.1, "model.tie_weights": "false",
                                               "model.vocab_size": 4096},
}
BASE = {"device": "cpu", "training.use_amp": "false", "training.max_steps": 1, "training.warmup_steps": 0, "training.eval_interval": 0,
        "training.checkpoint_interval": 0, "model.n_layer": 4, "model.n_head": 4, "model.n_embd": 256, "model.block_size": 256,
        "model.dropout": 0, "training.batch_size": 16}


def bytes_in(text: str) -> float:
    number, unit = re.search(r"about ([\d.]+) (\w+)", text).groups()
    return float(number) * UNITS[unit]


class MemoryEstimate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = self.folder / "text.txt"
        letters = random.Random(1)
        self.text.write_text("".join(letters.choice("abcdefgh ,.\n") for _ in range(100_000)))

    def estimate(self, options) -> float:
        report = programs.checks(*programs.flags(options), "--no-probe")
        return bytes_in(report["memory of the run"]["detail"])

    def peak(self, options) -> float:
        programs.run("gpt-train", *programs.flags(options), check_code=0)
        return 1e6 * max(line["peak_memory_mb"] for line in programs.metrics(options["output_dir"]) if "loss" in line)

    def test_never_below_the_peak_and_at_most_a_fifth_above(self):
        for number, (name, changes) in enumerate(RUNS.items()):
            with self.subTest(name):
                options = {**BASE, **changes, "data.text": self.text, "output_dir": self.folder / str(number), "threads": 1 + number % 2}
                share = self.estimate(options) / self.peak(options)
                self.assertGreaterEqual(share, 1)
                self.assertLessEqual(share, 1.2)


if __name__ == "__main__":
    unittest.main()
