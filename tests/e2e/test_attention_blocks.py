"""model.attention: blocks: each query chooses the blocks of keys that it attends to."""

import unittest

import torch

import programs

BLOCKS = {"model.attention": "blocks", "model.attention_top_blocks": 1, "model.block_size": 256, "training.batch_size": 2,
          "training.gradient_accumulation_steps": 1, "training.max_steps": 6, "training.eval_interval": 3}


class AttentionBlocks(programs.WithText):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder = cls.root / "blocks"
        cls.log = cls.train("blocks")

    @classmethod
    def train(cls, name, check_code=0, **options):
        return programs.train(cls.root / name, cls.text, check_code,
                              **{**{key.replace(".", "__"): value for key, value in BLOCKS.items()}, **options})

    def test_a_run_says_its_blocks_and_resumes_to_the_byte(self):
        self.assertIn("attention to 1 block that each query chooses and its own, of 64 positions each", self.log.stderr)
        self.assertIn("model.attention blocks (Llama has full)", self.log.stderr)
        self.train("halves", training__max_steps=3, training__lr_schedule="constant")
        self.train("halves", training__lr_schedule="constant")
        self.train("whole", training__lr_schedule="constant")
        halves, whole = (torch.load(self.root / name / "ckpt.pt", weights_only=True) for name in ("halves", "whole"))
        self.assertEqual(whole["config"]["model"]["attention"], "blocks")
        for name, value in whole["model"].items():
            self.assertTrue(torch.equal(value, halves["model"][name]), name)
        self.assertEqual(programs.losses(self.root / "halves"), programs.losses(self.root / "whole"))
        other = self.train("whole", check_code=4, model__attention_top_blocks=2, training__max_steps=9).stderr
        self.assertIn("belongs to another run: its configuration differs (model.attention_top_blocks: 1 -> 2", other)

    def test_libtorchs_operators_learn_the_same(self):
        self.train("ours", model__dropout=0)
        self.train("reference", model__dropout=0, training__use_compile="false")
        ours, reference = (programs.losses(self.root / name) for name in ("ours", "reference"))
        for step in range(1, 7):
            self.assertAlmostEqual(ours[step][0], reference[step][0], delta=1e-3)

    def test_a_full_model_goes_on_with_blocks_and_generates(self):
        full = {"model__attention": "full", "model__attention_top_blocks": 4, "training__max_steps": 2}
        self.train("full", **full)
        again = {key: value for key, value in {**programs.TINY, **BLOCKS}.items() if not key.startswith("model.")}
        again |= {"data.text": self.text, "output_dir": self.root / "sparse", "training.init_from": self.root / "full",
                  "training.max_steps": 2, "model.attention": "blocks", "model.attention_top_blocks": 1}
        programs.run("gpt-train", *programs.flags(again), check_code=0)
        model = torch.load(self.root / "sparse" / "ckpt.pt", weights_only=True)["config"]["model"]
        self.assertEqual((model["attention"], model["attention_top_blocks"]), ("blocks", 1))
        made = programs.run("gpt-generate", "--checkpoint", self.root / "sparse", "--prompt", "the quick " * 20, "--max_tokens", 40,
                            "--temperature", 0, check_code=0)
        self.assertTrue(made.stdout.strip())
        found = programs.run("gpt-eval", "--checkpoint", self.root / "sparse", "--data", self.text, "--limit", 2, check_code=0)
        self.assertIn("perplexity", found.stdout)

    def test_what_does_not_go_together_is_refused_by_name(self):
        for options, line in (
                ({"model__attention_window": 64}, "attention blocks chooses what a token sees, and attention_window 64 hides it"),
                ({"data__document_mask": "true"}, "document_mask keeps documents apart"),
                ({"model__attention_block": 96}, "must be a multiple of 64, got 96; use 64 or 128")):
            self.assertIn(line, self.train("refused", check_code=2, **options).stderr)
        for form in ([], ["--format", "gguf"]):
            line = programs.run("gpt-export", "--checkpoint", self.run_folder, "--output", self.root / "out", *form, check_code=4).stderr
            self.assertIn("model.attention blocks", line)

    def test_blocks_that_change_nothing_are_said(self):
        done = self.train("idle", model__attention_top_blocks=3, training__max_steps=1)
        self.assertIn("model.attention: blocks changes nothing: no query has more than 3 complete blocks", done.stderr)
        found = programs.checks(*programs.flags({**programs.TINY, **BLOCKS, "data.text": self.text}), "--output_dir",
                                self.root / "planned", "--no-probe", check_code=0)
        self.assertIn("attention to 1 block", found["attention"]["detail"])


if __name__ == "__main__":
    unittest.main()
