"""training.init_from: a new run that begins with the weights of a checkpoint, on other data."""

import pathlib
import shutil
import tempfile
import unittest

import torch

import programs


class InitFrom(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        text = programs.write_text(cls.root)
        cls.other = cls.root / "other.txt"
        cls.other.write_text("".join(f"{i}: a lazy fox sees the brown dog over the quick jumps.\n" for i in range(200)))
        cls.source = cls.root / "source"
        programs.train(cls.source, text, training__max_steps=12)
        cls.again = {key: value for key, value in programs.TINY.items() if not key.startswith("model.")}

    def train(self, run, words=(), check_code=0, **options):
        merged = {**self.again, "data.text": self.other, "output_dir": run, "training.init_from": self.source, "training.max_steps": 6}
        merged.update({key.replace("__", "."): value for key, value in options.items()})
        return programs.run("gpt-train", *programs.flags(merged), *words, check_code=check_code)

    def weights(self, run):
        return torch.load(run / "ckpt.pt", weights_only=True)["model"]

    def test_a_run_on_other_data_begins_with_the_weights_and_goes_on_with_its_own(self):
        run = self.root / "tuned"
        done = self.train(run)
        self.assertIn(f"Beginning a new run with the weights of {self.source}/ckpt.pt (step 12)", done.stderr)
        begun = torch.load(run / "ckpt.pt", weights_only=True)
        self.assertEqual(begun["step"], 6)
        self.assertEqual(begun["config"]["model"]["n_embd"], 32)
        self.assertEqual(begun["optimizer"]["step"], 6)
        # Untrained weights begin near the logarithm of the vocabulary.
        first = programs.losses(run)[1][0]
        self.assertLess(first, programs.losses(self.source)[1][0] - 0.2)
        moved = self.root / "moved"
        shutil.move(self.source, moved)  # it is not needed any more
        try:
            self.assertIn("after step 6", self.train(run, training__max_steps=7).stderr)
            config = run / "effective_config.yaml"
            self.assertIn("after step 7", programs.run("gpt-train", "--config", config, "--max_steps", 8, check_code=0).stderr)
            line = self.train(self.root / "nothing", check_code=4).stderr
            self.assertIn(f"training.init_from: cannot read {self.source}/ckpt.pt: No such file", line)
        finally:
            shutil.move(moved, self.source)
        line = self.train(run, check_code=4, training__init_from=self.source / "ckpt_best.pt").stderr
        self.assertIn("belongs to another run: its configuration differs (training.init_from:", line)
        # gpt-diagnose knows it too, and answers for a new one.
        words = programs.flags({**self.again, "data.text": self.other, "training.init_from": self.source})
        found = programs.checks(*words, "--output_dir", self.root / "planned", "--no-probe", check_code=0)
        self.assertIn("source/ckpt.pt: step 12", found["checkpoint"]["detail"])
        self.assertEqual(found["parameters"]["status"], "pass")

    def test_a_short_text_is_learned_in_short_sequences(self):
        short = self.root / "short.txt"
        short.write_text("".join(f"{i}: the lazy fox sees the dog.\n" for i in range(12)))
        words = {"data.text": short, "output_dir": self.root / "short", "training.init_from": self.source, "training.max_steps": 2}
        done = programs.run("gpt-train", *programs.flags(words), check_code=0)
        self.assertIn("sequences of 8 tokens (the model of training.init_from takes up to 16)", done.stderr)
        self.assertIn("a trained model is tuned with a learning rate of 0.0001, no dropout; --learning_rate auto looks", done.stderr)
        begun = torch.load(self.root / "short/ckpt.pt", weights_only=True)["config"]
        self.assertEqual(begun["training"]["sequence_length"], 8)
        self.assertEqual(begun["model"]["block_size"], 16, "the model sees as much as before")
        self.assertEqual(begun["training"]["learning_rate"], 1e-4)
        self.assertIn("after step 2", programs.run("gpt-train", *programs.flags({**words, "training.max_steps": 3}), check_code=0).stderr)

    def test_what_contradicts_the_checkpoint_is_refused_by_name(self):
        run = self.root / "refused"
        line = self.train(run, check_code=2, model__n_layer=3).stderr
        self.assertIn("model.n_layer 3 (the checkpoint has 2)", line)
        line = self.train(run, check_code=2, training__resume_from=self.source).stderr
        self.assertIn("keep one of them", line)
        self.assertFalse((run / "ckpt.pt").exists())

    def test_another_tokenizer_keeps_the_rows_of_tokens_with_the_same_text(self):
        run = self.root / "bytes"
        done = self.train(run, data__tokenizer="byte")
        old = self.weights(self.source)["transformer.wte.weight"].shape[0]
        self.assertRegex(done.stderr, rf"{self.source}/ckpt.pt: (\d+) tokens keep the rows of tokens with the same text, (\d+) new ones")
        self.assertEqual(self.weights(run)["transformer.wte.weight"].shape[0], 256)
        self.assertNotEqual(old, 256)
        self.assertIn("after step 6", self.train(run, data__tokenizer="byte", training__max_steps=7).stderr)

    def test_frozen_parameters_stay_as_they_were(self):
        run = self.root / "frozen"
        done = self.train(run, ["--freeze", "wte, h.0"], training__checkpoint_interval="2 steps")
        frozen = {"transformer.wte.weight", "lm_head.weight"} | {
            name for name in self.weights(self.source) if name.startswith("transformer.h.0.")}
        self.assertRegex(done.stderr, r"Frozen \(wte, h.0\): [0-9.]+k of [0-9.]+k parameters stay as they are; the backward pass ends at block 1")
        before, after = self.weights(self.source), self.weights(run)
        self.assertEqual({name for name in before if torch.equal(before[name], after[name])}, frozen)
        moments = torch.load(run / "ckpt.pt", weights_only=True)["optimizer"]["state"]
        self.assertEqual(set(moments), set(before) - frozen)
        self.assertIn("after step 6", self.train(run, ["--freeze", "[wte, h.0]"], training__max_steps=7).stderr)
        line = self.train(run, ["--freeze", "wte"], check_code=4).stderr
        self.assertIn("its configuration differs (training.freeze: [wte, h.0] -> [wte])", line)
        line = self.train(self.root / "nothing", ["--freeze", "h.2"], check_code=2).stderr
        self.assertIn("training.freeze: h.2 names no parameter of this model; there are wte, h.0-1, ln_f", line)
        self.assertEqual(programs.run("gpt-diagnose", "--checkpoint", run / "ckpt.pt", check_code=0).returncode, 0)

    def test_who_resumes_on_other_data_is_told_of_it(self):
        merged = {**programs.TINY, "data.text": self.other, "output_dir": self.source, "training.max_steps": 20}
        line = programs.run("gpt-train", *programs.flags(merged), check_code=4).stderr
        self.assertIn("--init_from", line)
        line = programs.run("gpt-train", *programs.flags({**merged, "output_dir": self.root / "elsewhere", "training.resume_from": self.source}),
                            check_code=4).stderr
        self.assertIn(f"--init_from {self.source}/ckpt.pt", line)


if __name__ == "__main__":
    unittest.main()
