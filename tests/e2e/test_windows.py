"""model.attention_window: sliding windows of attention, layer by layer."""

import unittest

import torch

import programs


class Windows(programs.WithText):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder = cls.root / "windowed"
        cls.log = programs.train(cls.run_folder, cls.text, model__attention_window=5, training__max_steps=6)

    def test_a_run_says_its_windows_and_keeps_them(self):
        self.assertIn("a window of 5 positions in 1 of 2 layers", self.log.stderr)
        self.assertEqual(torch.load(self.run_folder / "ckpt.pt", weights_only=True)["config"]["model"]["attention_window"], 5)
        words = {**programs.TINY, "data.text": self.text, "output_dir": self.run_folder, "training.max_steps": 8}
        other = programs.run("gpt-train", *programs.flags({**words, "model.attention_window": 6}), check_code=4).stderr
        self.assertIn("belongs to another run: its configuration differs (model.attention_window: 5 -> 6)", other)
        same = programs.run("gpt-train", *programs.flags({**words, "model.attention_window": 5}), check_code=0).stderr
        self.assertIn("windowed/ckpt.pt after step 6 of 8", same)

    def test_text_diagnosis_and_exports_follow(self):
        words = programs.flags({**programs.TINY, "data.text": self.text, "model.attention_window": 5})
        found = programs.checks(*words, "--output_dir", self.root / "planned", "--no-probe", check_code=0)
        self.assertIn("a window of 5 positions in 1 of 2 layers", found["attention"]["detail"])
        made = programs.run("gpt-generate", "--checkpoint", self.run_folder, "--prompt", "the", "--max_tokens", 40, check_code=0)
        self.assertTrue(made.stdout.strip())
        for words in ((), ("--format", "gguf")):
            output = self.root / f"out{''.join(words)}"
            line = programs.run("gpt-export", "--checkpoint", self.run_folder, "--output", output, *words, check_code=0).stderr
            self.assertIn("in the form of Ministral", line)
        exported = programs.run("gpt-generate", "--checkpoint", self.root / "out", "--prompt", "the", "--max_tokens", 40, "--temperature", 0,
                                check_code=0)
        own = programs.run("gpt-generate", "--checkpoint", self.run_folder, "--prompt", "the", "--max_tokens", 40, "--temperature", 0,
                           check_code=0)
        self.assertEqual(exported.stdout, own.stdout)

    def test_a_new_run_may_begin_with_the_weights_and_other_windows(self):
        tuned = self.root / "tuned"
        again = {key: value for key, value in programs.TINY.items() if not key.startswith("model.")}
        again |= {"data.text": self.text, "output_dir": tuned, "training.init_from": self.run_folder, "training.max_steps": 2}
        programs.run("gpt-train", *programs.flags(again), "--attention_window", 0, check_code=0)
        self.assertEqual(torch.load(tuned / "ckpt.pt", weights_only=True)["config"]["model"]["attention_window"], 0)

    def test_stages_narrow_the_window(self):
        def train(name, window, stages, steps=6):
            options = {"model__attention_window": window, "data__stages": stages, "training__max_steps": steps}
            return programs.train(self.root / name, self.text, **options)

        train("narrow", 3, "[{from: 0}]")
        said = train("staged", 12, "[{from: 0, attention_window: 3}]").stderr
        self.assertIn("a micro-step, with windows of 3 positions; main", said)
        narrow, staged = (programs.losses(self.root / name) for name in ("narrow", "staged"))
        self.assertEqual([narrow[step] for step in range(1, 7)], [staged[step] for step in range(1, 7)])
        widening = "[{from: 0, attention_window: 3}, {from: 3}]"
        train("widening", 12, widening)
        losses = programs.losses(self.root / "widening")
        self.assertEqual([losses[step] for step in range(1, 4)], [narrow[step] for step in range(1, 4)])
        self.assertNotEqual(losses[5], narrow[5])

    def test_a_window_that_changes_nothing_is_said(self):
        done = programs.train(self.root / "idle", self.text, model__attention_window=10000, training__max_steps=1)
        self.assertIn("model.attention_window 10000 changes nothing: the sequences have only", done.stderr)


if __name__ == "__main__":
    unittest.main()
