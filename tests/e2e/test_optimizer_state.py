"""AdamW's state in fewer bits, end to end: what the log says, what a checkpoint holds for Python, and how a run goes on from it."""

import pathlib
import tempfile
import unittest

import torch

import programs
from checkpoints import load


def moment_map(signed):
    """What the 256 codes stand for, as parts of their block's largest magnitude. OPTIMIZATIONS.md has this function."""
    values = [10.0 ** (d - 6) * (0.1 + 0.9 * (i + 0.5) / n) for d in range(7) for n in [2 ** (d + (not signed))] for i in range(n)]
    return torch.tensor(sorted([-v for v in values if signed] + [0.0] + values + [1.0]))


def moment(state, slot):
    codes = state[slot]
    largest = state[slot + "_max"].repeat_interleave(256)[:codes.numel()].view(codes.shape)
    return moment_map(slot == "exp_avg")[codes.long()] * largest


class OptimizerState(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.text = programs.write_text(cls.root)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def train(self, run, **options):
        return programs.train(self.root / run, self.text, **options).stderr

    def test_the_log_names_the_optimizer(self):
        self.assertIn("Using fused AdamW\n", self.train("plain", training__max_steps=1))
        self.assertIn("Using 8-bit AdamW optimizer\n", self.train("named", training__max_steps=1, training__use_8bit="true"))

    def test_a_resumed_run_is_the_run_that_never_stopped(self):
        for dtype in ("int8", "bfloat16"):
            with self.subTest(dtype=dtype):
                self.train(f"whole_{dtype}", training__optimizer_state_dtype=dtype)
                run = self.root / f"resumed_{dtype}"
                self.train(run.name, training__optimizer_state_dtype=dtype, training__checkpoint_interval=1, training__keep_last=100)
                (run / "ckpt_step_00000007.pt").rename(run / "ckpt.pt")
                self.train(run.name, training__optimizer_state_dtype=dtype)
                self.assertEqual(programs.losses(run), programs.losses(self.root / f"whole_{dtype}"))

    def test_python_reads_the_moments(self):
        """One update: float32 moments are the gradient times 1 - beta, and 8-bit ones the nearest to them."""
        self.train("one_float32", training__max_steps=1)
        self.train("one_int8", training__max_steps=1, training__use_8bit="true")
        exact, coded = (load(self.root / run / "ckpt.pt")["optimizer"]["state"] for run in ("one_float32", "one_int8"))
        self.assertEqual(exact.keys(), coded.keys())
        for name, state in coded.items():
            self.assertEqual(list(state), ["exp_avg", "exp_avg_sq", "exp_avg_max", "exp_avg_sq_max"])
            self.assertEqual(state["exp_avg"].dtype, torch.uint8)
            for slot, widest in (("exp_avg", 0.9 / 64), ("exp_avg_sq", 0.9 / 128)):
                largest = state[slot + "_max"].max().item()
                self.assertEqual(largest, exact[name][slot].abs().max().item())
                error = (moment(state, slot) - exact[name][slot]).abs().max().item()
                self.assertLessEqual(error, 0.501 * widest * largest, f"{slot} of {name}")

    def test_another_state_is_converted_on_resume(self):
        self.train("changed", training__max_steps=8)
        output = self.train("changed", training__use_8bit="true")
        self.assertIn("changed since the checkpoint: training.optimizer_state_dtype: float32 -> int8", output)
        self.assertIn("AdamW's moments were of another type and have been converted", output)
        self.assertEqual(load(self.root / "changed/ckpt.pt")["step"], 24)
        self.assertLess(programs.losses(self.root / "changed")[24][0], programs.losses(self.root / "changed")[8][0])

    def test_sixteen_bits_alone(self):
        alone = dict(training__use_amp="true", training__dtype="bfloat16", training__amp_mode="end_to_end", training__master_weights="false",
                     training__gradient_dtype="bfloat16", training__use_8bit="true")
        self.assertIn("bfloat16 end to end, weights too", self.train("whole_alone", **alone))
        run = self.root / "resumed_alone"
        self.train(run.name, training__checkpoint_interval=1, training__keep_last=100, **alone)
        (run / "ckpt_step_00000007.pt").rename(run / "ckpt.pt")
        self.train(run.name, **alone)
        self.assertEqual(programs.losses(run), programs.losses(self.root / "whole_alone"))
        self.assertTrue(all(weight.dtype == torch.bfloat16 for weight in load(run / "ckpt.pt")["model"].values()))
        # Also where auto means float32.
        options = {**programs.TINY, "data.text": self.text, "output_dir": run, "training.use_amp": "true", "training.master_weights": "false"}
        programs.run("gpt-train", *programs.flags(options), "--eval-only", check_code=0)
        done = programs.run("gpt-generate", "--checkpoint", run, "--max-new-tokens", 5, check_code=0)
        self.assertTrue(done.stdout)

    def test_a_setting_without_effect_is_named(self):
        output = self.train("idle", training__max_steps=1, training__float32_embedding_state="true")
        self.assertIn("No effect here: training.float32_embedding_state", output)

    def test_swapping_needs_a_gpu(self):
        for value in ("auto", 3):
            done = programs.train(self.root / "swapped", self.text, check_code=2, **{"device": "cpu", "training.swap_activations": value})
            self.assertIn("swap_activations needs a GPU: on a CPU activations are in the memory of the host anyway", done.stderr)

    def test_offloading_needs_a_gpu(self):
        options = {**programs.TINY, "data.text": self.text, "output_dir": self.root / "offloaded", "device": "cpu",
                   "training.cpu_offload": "true"}
        refused = programs.run("gpt-train", *programs.flags(options), check_code=2)
        self.assertIn("offload_optimizer is 1, but on a CPU the optimizer's state is in the memory of the host anyway",
                      refused.stderr)


if __name__ == "__main__":
    unittest.main()
