"""training.quantized_forward: products in 8 bits while training, and the model itself in validations and checkpoints."""

import unittest

import programs
from checkpoints import load, same

# Forced, because products as small as these may gain nothing.
RUN = {"model.n_layer": 3, "model.dropout": 0.1, "training.quantized_forward": "int8", "training.quantized_forward_force": "true"}


class QuantizedForward(programs.WithText):
    def train(self, name, check_code=0, **options):
        return programs.train(self.root / name, self.text, check_code=check_code, **{**RUN, **options}).stderr

    def assert_same_run(self, one, other):
        a, b = load(self.root / one / "ckpt.pt"), load(self.root / other / "ckpt.pt")
        for key in ("model", "optimizer", "rng", "data", "step"):
            self.assertTrue(same(a[key], b[key]), key)
        self.assertEqual(programs.losses(self.root / one), programs.losses(self.root / other))

    def test_it_goes_on_to_the_byte_and_validates_the_model_itself(self):
        options = {"training__quantized_products": "all", "training__dtype": "bfloat16", "training__use_amp": "true",
                   "training__amp_mode": "end_to_end"}
        kept = {"training__checkpoint_interval": 7, "training__keep_last": 9}
        log = self.train("whole", **options)
        self.assertIn("int8 in 1 of 3 blocks (1 to 1): the products of both passes reach", log)
        losses = programs.losses(self.root / "whole")
        self.assertLess(losses[24][0], 0.8 * losses[1][0])
        self.train("resumed", **options, **kept)
        (self.root / "resumed/ckpt_step_00000014.pt").rename(self.root / "resumed/ckpt.pt")
        self.train("resumed", **options)
        self.assert_same_run("whole", "resumed")
        # As without the key, which is for training.
        words = ["--config", self.root / "whole/effective_config.yaml", "--resume_from", self.root / "whole", "--eval-only"]
        for more in ([], ["--training.quantized_forward", "none"]):
            said = programs.run("gpt-train", *words, *more, check_code=0).stdout
            self.assertAlmostEqual(float(said.split("val loss ")[1].split()[0]), losses["val", 24], delta=1e-4)

    @programs.long
    def test_recomputation_and_processes_compute_the_same_run(self):
        lanes = {"distributed__lanes": 2}
        log = self.train("one", **lanes)
        self.assertIn("int8 in 1 of 3 blocks (1 to 1): products of the forward pass reach", log)
        self.train("recomputed", **lanes, training__gradient_checkpointing="block")
        self.assert_same_run("one", "recomputed")
        for zero in (0, 2):
            self.train(f"zero {zero}", **lanes, distributed__processes=2, distributed__zero=zero)
            self.assert_same_run("one", f"zero {zero}")
        whole = {"model__n_layer": 4, "model__tie_weights": "false"}
        self.train("whole model", **whole)
        self.train("stages", **whole, distributed__processes=2, distributed__pipeline_parallel=2)
        self.assertEqual(programs.losses(self.root / "whole model"), programs.losses(self.root / "stages"))
        self.train("usual", **lanes, training__quantized_forward="none")
        self.assertNotEqual(programs.losses(self.root / "one"), programs.losses(self.root / "usual"))

    def test_what_gains_nothing_or_cannot_be_done_is_refused(self):
        # Without vector instructions whole numbers are multiplied more slowly than LibTorch's float32.
        slow = {"data.text": self.text, "output_dir": self.root / "slow", **programs.TINY, **RUN, "model.n_embd": 128,
                "training.quantized_forward_force": "false"}
        done = programs.run("gpt-train", *programs.flags(slow), check_code=2, env={"ATEN_CPU_CAPABILITY": "default"})
        self.assertRegex(done.stderr, r"training.quantized_forward: int8 in 1 of 3 blocks \(1 to 1\): products of the forward pass reach "
                         r"[\d.]+ GFLOP/s, where float32 reaches [\d.]+ GFLOP/s: nothing is gained; set "
                         r"training.quantized_forward: none, or quantized_forward_force: true")
        for options, words in (
                ({"training__quantized_forward": "fp8"},
                 "quantized_forward fp8 needs a GPU; set quantized_forward to none, or device to cuda"),
                ({"training__quantized_forward_skip": 2},
                 "quantized_forward leaves out 2 blocks at each end, and the model has 3 blocks; set quantized_forward_skip to 1, or quantized_forward to none"),
                ({"distributed__processes": 2, "distributed__zero": 3}, "which zero 3 divides"),
                ({"training__use_compile": "false"}, "needs the operators of use_compile")):
            with self.subTest(words=words):
                self.assertIn(words, self.train("refused", check_code=2, **options))

    def test_diagnose_says_what_it_gains_and_takes(self):
        words = programs.flags({**programs.TINY, **RUN, "data.text": self.text, "output_dir": self.root / "none"})
        check = programs.checks(*words, "--no-probe")["quantized forward"]
        self.assertIn("int8 in 1 of 3 blocks", check["detail"])
        self.assertGreater(check["values"]["quantized_flops_per_second"], 0)


if __name__ == "__main__":
    unittest.main()
