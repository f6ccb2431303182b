"""Muon, end to end: against torch.optim.Muon, what a checkpoint holds, and how a run goes on from it."""

import math
import unittest

import torch

import programs
from checkpoints import load, same

# Grouped heads and a gated MLP: query 32 rows, key and value 16 each.
SHAPE = {"model__n_head": 4, "model__n_kv_head": 2, "model__mlp": "swiglu", "model__bias": "false"}
RATE, DECAY, MOMENTUM = 1e-2, 0.1, 0.95


def parts(name, tensor):
    """The matrices that are made orthogonal apart."""
    return tensor.split([32, 16, 16]) if name.endswith("c_attn.weight") else [tensor]


def exact(weight, momentum, gradient):
    """The update in float64."""
    weight, momentum, gradient = weight.double(), momentum.double(), gradient.double()
    momentum = torch.lerp(momentum, gradient, 1 - MOMENTUM)
    x = torch.lerp(gradient, momentum, MOMENTUM)
    is_tall = x.size(0) > x.size(1)
    x = x.T if is_tall else x
    x = x / x.norm()
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return weight * (1 - RATE * DECAY) - RATE * 0.2 * math.sqrt(max(weight.shape)) * (x.T if is_tall else x)


def by_pytorch(weight, momentum, gradient):
    parameter = torch.nn.Parameter(weight.clone())
    optimizer = torch.optim.Muon([parameter], lr=RATE, weight_decay=DECAY, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw")
    optimizer.state[parameter]["momentum_buffer"] = momentum.clone()
    parameter.grad = gradient.clone()
    optimizer.step()
    return parameter.detach()


class Muon(programs.WithText):
    def train(self, run, **options):
        return programs.train(self.root / run, self.text, **{"training__optimizer": "muon", **options}).stderr

    def test_an_update_is_that_of_torch_optim_muon(self):
        """PyTorch computes in bfloat16. Ours, in that or float32, must be as near to the update in float64 as PyTorch's is."""
        output = self.train("steps", training__max_steps=4, training__checkpoint_interval=1, training__keep_last=10,
                            training__lr_schedule="constant", training__warmup_steps=0, **SHAPE)
        self.assertIn("Using Muon for the matrices of the blocks; fused AdamW for all else\n", output)
        self.assertRegex(output, r"Newton-Schulz takes \d+ % of the operations of a step, [\d.]+ MFLOP for 14 matrices; a larger")
        before, after = (load(self.root / "steps" / f"ckpt_step_0000000{step}.pt") for step in (2, 3))
        compared = 0
        for name, state in after["optimizer"]["state"].items():
            if "momentum_buffer" not in state:
                self.assertEqual(list(state), ["exp_avg", "exp_avg_sq"], name)
                continue
            self.assertEqual(list(state), ["momentum_buffer"], name)
            old, new = before["optimizer"]["state"][name]["momentum_buffer"], state["momentum_buffer"]
            gradient = ((new.double() - MOMENTUM * old.double()) / (1 - MOMENTUM)).float()
            of = [parts(name, tensor) for tensor in (before["model"][name], old, gradient, after["model"][name])]
            for weight, momentum, part, ours in zip(*of):
                expected = exact(weight, momentum, part)
                of_pytorch, of_ours = ((x - expected).norm().item() for x in (by_pytorch(weight, momentum, part), ours))
                self.assertLessEqual(of_ours, 2 * of_pytorch, name)
                self.assertLess(of_ours, 0.1 * (expected - weight).norm().item(), name)
                compared += 1
        self.assertEqual(compared, 2 * (3 + 1 + 3))

    def test_a_resumed_run_is_the_run_that_never_stopped(self):
        for case, options in (("plain", {}), ("eight_bits", {"training__optimizer": "normuon", "training__use_8bit": "true",
                                                             "training__cautious_weight_decay": "true", "training__freeze": "h.0.attn"})):
            with self.subTest(case=case):
                self.train(f"whole_{case}", **options)
                run = self.root / f"resumed_{case}"
                self.train(run.name, training__checkpoint_interval=1, training__keep_last=100, training__async_checkpoint="true", **options)
                (run / "ckpt_step_00000007.pt").rename(run / "ckpt.pt")
                self.train(run.name, **options)
                self.assertEqual(programs.losses(run), programs.losses(self.root / f"whole_{case}"))
                self.assertTrue(same(load(run / "ckpt.pt")["optimizer"], load(self.root / f"whole_{case}" / "ckpt.pt")["optimizer"]))

    def test_the_same_run_by_several_processes(self):
        for processes in (1, 2):
            self.train(f"by_{processes}", distributed__lanes=2, distributed__processes=processes, training__max_steps=8)
        one, two = (load(self.root / f"by_{processes}" / "ckpt.pt") for processes in (1, 2))
        for name, weight in one["model"].items():
            self.assertTrue(weight.equal(two["model"][name]), name)

    def test_another_optimizer_is_another_run(self):
        run = self.root / "changed"
        self.train(run.name, training__max_steps=4)
        line = programs.train(run, self.text, check_code=4).stderr
        self.assertIn("belongs to another run: its configuration differs (training.optimizer: muon -> adamw)", line)
        done = programs.train(self.root / "tuned", self.text, training__init_from=run, training__max_steps=2)
        self.assertIn("Beginning a new run with the weights of", done.stderr)
        self.assertIn("exp_avg", load(self.root / "tuned" / "ckpt.pt")["optimizer"]["state"]["transformer.h.0.attn.c_attn.weight"])

    def test_other_bits_of_the_momentum_are_converted_on_resume(self):
        self.train("converted", training__max_steps=8, model__mlp="gelu")
        output = self.train("converted", training__use_8bit="true", model__mlp="gelu")
        self.assertIn("Using Muon for the matrices of the blocks, with the momentum in 8 bits; 8-bit AdamW optimizer for all else", output)
        self.assertIn("The optimizer's state was of another type and has been converted", output)
        state = load(self.root / "converted" / "ckpt.pt")["optimizer"]["state"]["transformer.h.1.mlp.c_fc.weight"]
        self.assertEqual(list(state), ["momentum_buffer", "momentum_buffer_max"])

    def test_the_plan_counts_a_momentum_alone(self):
        words = {**programs.TINY, "data.text": self.text, "model.mlp": "gelu", "output_dir": self.root / "planned"}
        of = {kind: programs.checks(*programs.flags({**words, "training.optimizer": kind}), "--no-probe")
              for kind in ("adamw", "muon", "normuon")}
        bytes_of = {kind: found["memory of the run"]["values"]["optimizer_bytes"] for kind, found in of.items()}
        matrices = 2 * 12 * 32 * 32
        self.assertEqual(bytes_of["adamw"] - bytes_of["muon"], 4 * matrices)
        self.assertEqual(bytes_of["normuon"] - bytes_of["muon"], 4 * 2 * (3 + 1 + 4 + 1) * 32)
        self.assertIn("Newton-Schulz takes", of["muon"]["compute"]["detail"])
        self.assertNotIn("Newton-Schulz", of["adamw"]["compute"]["detail"])

    def test_settings_without_effect_are_named(self):
        output = programs.train(self.root / "idle", self.text, training__max_steps=1, training__muon_momentum=0.9).stderr
        self.assertIn("No effect here: training.muon_momentum", output)


if __name__ == "__main__":
    unittest.main()
