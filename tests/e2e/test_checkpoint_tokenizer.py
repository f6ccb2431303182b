"""Byte-level BPE through a whole run: GPT-2's vocabulary, which set-up installs, travels in the checkpoint, and no other replaces it."""

import json
import pathlib
import shutil
import tempfile
import unittest

import torch

import programs


class Tokenizer(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.text = programs.write_text(self.root)

    def train(self, tokenizer, check_code=0, steps=2):
        return programs.train(self.root / "run", self.text, check_code=check_code, data__tokenizer=tokenizer,
                              training__max_steps=steps)

    def saved_tokenizer(self):
        return torch.load(self.root / "run/ckpt.pt", weights_only=True)["tokenizer"]

    def test_a_vocabulary_of_megabytes_travels_in_the_checkpoint(self):
        self.train("gpt2")
        saved = self.saved_tokenizer()
        self.assertGreater(len(saved), 10**6)
        model = json.loads(saved)["model"]
        self.assertEqual(len(model["vocab"]), 50257)
        self.assertEqual(len(model["merges"]), 50000)
        self.assertEqual(model["vocab"]["\u0120world"], 995)
        written = programs.run("gpt-generate", "--checkpoint", self.root / "run/ckpt.pt", "--prompt", "the quick", "-n", 3,
                               "--device", "cpu", check_code=0)
        self.assertTrue(written.stdout.startswith("the quick"))

    def test_another_vocabulary_under_the_same_name_is_refused(self):
        fixtures = programs.SOURCE / "tests/tokenizer/hugging_face"
        file = self.root / "tokenizer.json"
        shutil.copy(fixtures / "gpt2.json", file)
        self.train(file)
        self.assertEqual(self.saved_tokenizer(), file.read_text())  # as Hugging Face wrote it, to the byte
        shutil.copy(fixtures / "llama3.json", file)
        refused = self.train(file, check_code=4, steps=4)
        self.assertIn(f"data.tokenizer: {file} is not the tokenizer of the checkpoint", refused.stderr)
        shutil.copy(fixtures / "gpt2.json", file)
        self.train(file, steps=4)


if __name__ == "__main__":
    unittest.main()
