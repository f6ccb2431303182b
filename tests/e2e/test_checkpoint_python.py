"""ckpt.pt as Python sees it: torch.load(weights_only=True) gives the plain values and tensors that were saved."""

import math
import os
import subprocess
import tempfile
import unittest
import zipfile

import torch

BIN = os.environ["GPT_BIN"]


class SampleCheckpoint(unittest.TestCase):
    """The values of tests/checkpoint/sample_checkpoint.h."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "ckpt.pt")
        subprocess.run([os.path.join(BIN, "write_checkpoint"), cls.path], check=True)
        cls.loaded = torch.load(cls.path, weights_only=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def assert_tensor(self, tensor, expected):
        self.assertEqual(tensor.dtype, expected.dtype)
        self.assertEqual(tensor.shape, expected.shape)
        self.assertTrue(torch.equal(tensor, expected))
        self.assertTrue(tensor.is_contiguous())
        self.assertFalse(tensor.requires_grad)

    def test_model_is_a_state_dict(self):
        model = self.loaded["model"]
        self.assertEqual(list(model), ["transformer.wte.weight", "transformer.h.0.attn.c_attn.weight",
                                       "transformer.ln_f.weight", "scalar", "half", "empty", "lm_head.weight"])
        limits = torch.finfo(torch.float32)
        self.assert_tensor(model["transformer.wte.weight"], torch.arange(35.0).view(7, 5) / 8 - 2)
        self.assert_tensor(model["transformer.h.0.attn.c_attn.weight"], (torch.arange(12.0) / 4).view(3, 4).bfloat16())
        extremes = model["transformer.ln_f.weight"]
        self.assert_tensor(extremes, torch.tensor([limits.max, limits.min, 2.0**-149, -0.0, 1.0]))
        self.assertEqual(math.copysign(1, extremes[3]), -1)
        self.assert_tensor(model["scalar"], torch.tensor(0.1, dtype=torch.float64))
        self.assert_tensor(model["half"], torch.arange(6, dtype=torch.float16).view(1, 2, 1, 3))
        self.assert_tensor(model["empty"], torch.zeros(0, 3))

    def test_tied_head_is_the_embedding_itself(self):
        model = self.loaded["model"]
        self.assertEqual(model["lm_head.weight"].data_ptr(), model["transformer.wte.weight"].data_ptr())
        self.assert_tensor(model["lm_head.weight"], model["transformer.wte.weight"])

    def test_model_loads_into_a_module(self):
        module = torch.nn.Module()
        module.transformer = torch.nn.ModuleDict(
            {"wte": torch.nn.Embedding(7, 5), "ln_f": torch.nn.LayerNorm(5, bias=False)})
        module.lm_head = torch.nn.Linear(5, 7, bias=False)
        wanted = {name: tensor for name, tensor in self.loaded["model"].items() if name in module.state_dict()}
        module.load_state_dict(wanted, strict=True)
        self.assertTrue(torch.equal(module.lm_head.weight, self.loaded["model"]["transformer.wte.weight"]))

    def test_optimizer(self):
        optimizer = self.loaded["optimizer"]
        self.assertEqual(set(optimizer), {"state", "step"})
        self.assertEqual(optimizer["step"], 41)
        self.assertEqual(list(optimizer["state"]), [name for name in self.loaded["model"] if name != "lm_head.weight"])
        for name, state in optimizer["state"].items():
            shape = self.loaded["model"][name].shape
            self.assert_tensor(state["exp_avg"], torch.full(shape, -0.5))
            self.assert_tensor(state["exp_avg_sq"], torch.full(shape, 0.25))

    def test_config_is_a_nested_dict_of_plain_values(self):
        config = self.loaded["config"]
        self.assertEqual(config["seed"], 1337)
        self.assertEqual(config["model"]["n_layer"], 3)
        self.assertEqual(config["model"]["vocab_size"], 65)
        self.assertIsNone(config["model"]["n_kv_head"])
        self.assertIsInstance(config["training"]["batch_size"], int)
        self.assertEqual(config["training"]["learning_rate"], 3e-4)
        self.assertEqual(config["model"]["mlp"], "swiglu")
        self.assertIs(config["model"]["tie_weights"], True)
        self.assertEqual(os.fsencode(config["data"]["text"]), b"caf\xe9.txt")
        self.assertEqual(config["training"]["learning_rate"], 3e-4)
        self.assertIs(config["training"]["use_amp"], False)
        self.assertEqual(config["training"]["eval_interval"], "500 steps")
        self.assertEqual(config["training"]["checkpoint_interval"], "2 epochs")
        self.assertEqual(config["training"]["sample_prompt"], 'Größe: "x"\n')

    def test_other_values(self):
        loaded = self.loaded
        self.assertIs(type(loaded), dict)
        self.assertEqual(loaded["step"], 42)
        self.assertIs(type(loaded["step"]), int)
        self.assertEqual(loaded["best_val_loss"], math.inf)
        self.assertEqual(loaded["evaluated_step"], 40)
        self.assertEqual(loaded["skipped_steps"], 5)
        self.assertEqual(loaded["consecutive_skipped_steps"], 2)
        self.assert_tensor(loaded["spikes"]["window"], torch.arange(6.0).view(2, 3) / 4)
        self.assert_tensor(loaded["spikes"]["accepted"], torch.tensor(35))
        self.assertEqual(loaded["spike_count"], 3)
        self.assertEqual(loaded["text_format"], {"bos_token_id": 1, "pad_token_id": 2, "eos_token_id": (3, 4), "chat_template": "{{ \"é\" }}\n"})
        self.assertEqual(loaded["schedule"], {"warmup_steps": 10})
        self.assertEqual(loaded["plateau"], {"best": 1.5, "factor": 0.125, "without_improvement": 2, "cooling_down": 1})
        self.assertEqual(loaded["rollback"], {"count": 2, "learning_rate_factor": 0.25, "proven_step": 20, "waiting_step": 30})
        self.assertEqual(loaded["decisions"], ({"step": 12, "what": "learning_rate_factor", "value": 0.5},
                                               {"step": 33, "what": "learning_rate_factor", "value": 0.25}))
        self.assertEqual(loaded["data"], {"epoch": 3, "sample": 2**40 + 1, "fingerprint": "0123abcd"})
        self.assertEqual(loaded["environment"], {"cpu": "a CPU", "threads": "2"})
        self.assertEqual(loaded["tokenizer"], '{"type": "char", "characters": "\\n aé"}')
        self.assert_tensor(loaded["scaler"]["scale"], torch.tensor(65536.0))
        self.assert_tensor(loaded["scaler"]["growth_tracker"], torch.tensor(7, dtype=torch.int32))
        self.assert_tensor(loaded["rng"]["cpu"], torch.arange(256, dtype=torch.uint8))
        self.assert_tensor(loaded["rng"]["cuda"], torch.full((16,), 255, dtype=torch.uint8))

    def test_mapped_it_is_the_same(self):
        mapped = torch.load(self.path, weights_only=True, mmap=True)
        for name, tensor in self.loaded["model"].items():
            self.assert_tensor(mapped["model"][name], tensor)
        self.assertEqual({**mapped, "model": 0, "optimizer": 0, "scaler": 0, "rng": 0, "spikes": 0},
                         {**self.loaded, "model": 0, "optimizer": 0, "scaler": 0, "rng": 0, "spikes": 0})

    def test_is_an_ordinary_zip_archive(self):
        with zipfile.ZipFile(self.path) as archive:
            self.assertIsNone(archive.testzip())  # checks every CRC
            self.assertEqual({info.compress_type for info in archive.infolist()}, {zipfile.ZIP_STORED})
            self.assertIn("n_layer: 3", archive.read("archive/config.yaml").decode(errors="surrogateescape"))


if __name__ == "__main__":
    unittest.main()
