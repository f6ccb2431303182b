"""gpt-prune: a smaller model is a checkpoint that every program takes and that trains on, and each mistake is one line."""

import json
import re
import shutil
import unittest

import torch

import programs

GPT2 = {"model__norm": "layernorm", "model__mlp": "gelu", "model__position": "learned", "model__bias": "true"}


class Prune(programs.WithText):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.large = cls.root / "large"
        programs.train(cls.large, cls.text, model__n_layer=3, model__n_head=4, model__n_hidden=128, training__max_steps=60)

    def prune(self, *words, code=0, checkpoint=None, data=None, output=None):
        return programs.run("gpt-prune", "--checkpoint", checkpoint or self.large, "--data", data or self.text, "--device", "cpu",
                            "--threads", 1, "--output", output or self.root / "smaller", *words, check_code=code)

    def assert_refused(self, code, message, *words, **options):
        output = self.root / "refused"
        done = self.prune(*words, code=code, **{"output": output, **options})
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, "^(Preparing .*\n)?error: .*" + message + ".*\n$")
        self.assertFalse(output.exists())

    def loss(self, checkpoint):
        report = programs.run("gpt-eval", "--checkpoint", checkpoint, "--data", self.text, "--device", "cpu", "--threads", 1, "--json",
                              check_code=0).stdout
        return json.loads(report)["results"][0]["metrics"]["loss"]["value"]

    def test_the_smaller_model_is_a_checkpoint_that_trains_on(self):
        smaller = self.root / "smaller"
        done = self.prune("--mlp", "25%", "--heads", 1, "--layers", 1, "--sequences", 100000)
        before, after = (float(loss) for loss in re.search(r"\n  loss +([\d.]+) +([\d.]+) ", done.stdout).groups())
        self.assertRegex(done.stdout, r"\n  layers +3 +2 +-33.3%, without h\.\d\n  heads of a layer +4 +3 ")
        self.assertRegex(done.stdout, r"\n  neurons of a layer +128 +96 +-25.0%\n  parameters +[\d,]+ +[\d,]+ ")
        again = json.loads(self.prune("--mlp", "25%", "--heads", 1, "--layers", 1, "--sequences", 100000, "--json",
                                      output=self.root / "again").stdout)
        self.assertAlmostEqual(again["after"]["loss"], after, delta=1e-4)
        self.assertEqual((again["before"]["layers"], again["after"]["layers"], len(again["kept_layers"])), (3, 2, 2))
        found = torch.load(smaller / "ckpt.pt", weights_only=True)
        self.assertEqual({key: found["config"]["model"][key] for key in ("n_layer", "n_head", "n_hidden", "head_dim", "n_embd")},
                         {"n_layer": 2, "n_head": 3, "n_hidden": 96, "head_dim": 8, "n_embd": 32})
        self.assertEqual(found["model"]["transformer.h.1.attn.c_attn.weight"].shape, (3 * 24, 32))
        self.assertEqual(found["model"]["transformer.h.1.attn.c_proj.weight"].shape, (32, 24))
        # The losses are those that gpt-eval finds, but for the text's end, which is no whole sequence.
        self.assertAlmostEqual(self.loss(self.large), before, delta=2e-3)
        self.assertAlmostEqual(self.loss(smaller), after, delta=2e-3)
        self.assertGreater(after, before)
        words = ("--device", "cpu", "--prompt", "1: the", "--seed", 1, "-n", 10)
        self.assertTrue(programs.run("gpt-generate", "--checkpoint", smaller, *words, check_code=0).stdout.startswith("1: the"))
        done_export = programs.run("gpt-export", "--checkpoint", smaller, "--output", self.root / "no", check_code=4)
        self.assertIn("model.n_head 3 does not divide model.n_embd 32; llama.cpp takes it: add --format gguf", done_export.stderr)
        programs.run("gpt-export", "--checkpoint", smaller, "--format", "gguf", "--output", self.root / "smaller.gguf", check_code=0)
        programs.run("gpt-diagnose", "--checkpoint", smaller, check_code=0)
        # The command of its last line, with the sizes of a test.
        command = re.search(r"It recovers by training: gpt-train (.*)\n$", done.stdout)[1].split()
        short = {key: value for key, value in programs.TINY.items() if not key.startswith("model.")}
        programs.run("gpt-train", *command, *programs.flags(short), check_code=0)
        recovered = self.root / "smaller-trained"
        self.assertEqual(torch.load(recovered / "ckpt.pt", weights_only=True)["config"]["model"]["head_dim"], 8)
        self.assertLess(programs.losses(recovered)["val", 24], after)

    def test_half_of_the_heads_are_exported(self):
        output = self.root / "two_heads.pt"
        self.prune("--heads", "50%", output=output)
        programs.run("gpt-export", "--checkpoint", output, "--output", self.root / "exported", check_code=0)
        self.assertEqual(json.loads((self.root / "exported/config.json").read_text())["head_dim"], 8)
        self.assertEqual(self.loss(self.root / "exported"), self.loss(output))

    def test_what_counts_is_kept(self):
        losses = {}
        for choice in ("importance", "random"):
            output = self.root / f"by-{choice}.pt"
            self.prune("--mlp", "50%", "--choice", choice, output=output)
            losses[choice] = self.loss(output)
        self.assertLess(losses["importance"], losses["random"])

    def test_the_form_of_gpt2_and_a_bin(self):
        gpt2, tokens, output = self.root / "gpt2", self.root / "tokens", self.root / "from_bin.pt"
        programs.train(gpt2, self.text, training__max_steps=4, data__tokenizer="byte", **GPT2)
        programs.run("gpt-prepare", "--input", self.text, "--output", tokens, "--tokenizer", "byte", check_code=0)
        done = self.prune("--mlp", 28, "--layers", "50%", checkpoint=gpt2 / "ckpt.pt", data=tokens / "tokens_bpe.bin", output=output)
        self.assertIn(f"--init_from {output} --bin {tokens}/tokens_bpe.bin --output_dir {self.root}/from_bin-trained\n", done.stdout)
        self.assertEqual(torch.load(output, weights_only=True)["model"]["transformer.h.0.mlp.c_proj.weight"].shape, (32, 100))
        programs.run("gpt-export", "--checkpoint", output, "--output", self.root / "gpt2_exported", check_code=0)
        self.assert_refused(3, "tokens_bpe.bin: .*tokenizer", "--layers", 1, data=tokens / "tokens_bpe.bin")  # the large one's is another
        fewer = self.root / "fewer_heads.pt"
        self.prune("--heads", 1, checkpoint=gpt2, output=fewer)
        done = programs.run("gpt-export", "--checkpoint", fewer, "--output", self.root / "no", check_code=4)
        self.assertIn("model.head_dim 16 (GPT-2 has 32)", done.stderr)

    def test_mistakes_are_one_line(self):
        self.assert_refused(2, "say what to remove: --mlp 25%, --heads 2 or --layers 1")
        self.assert_refused(2, "--mlp 120%: a share is less than 100%", "--mlp", "120%")
        self.assert_refused(2, "--layers many: a share such as 25% or a whole number is needed", "--layers", "many")
        self.assert_refused(2, "--layers 3: the model has 3 layers, and at least one must be left", "--layers", 3)
        short = self.root / "short.txt"
        short.write_text("1: the fox")
        self.assert_refused(3, r"short.txt: it has 10 tokens, and one sequence of the model takes 17 \(block_size \+ 1\)", "--layers", 1,
                            data=short)
        self.assert_refused(3, "there.txt", "--layers", 1, data=self.root / "not_there.txt")
        self.assert_refused(4, "nothing/ckpt.pt", "--layers", 1, checkpoint=self.root / "nothing/ckpt.pt")
        done = self.prune("--layers", 1, output=self.large, code=2)
        self.assertIn(f"--output {self.large}: {self.large}/ckpt.pt is there already; name another folder or file", done.stderr)
        foreign = self.root / "foreign"
        foreign.mkdir()
        (foreign / "config.json").write_text("{}")
        self.assert_refused(2, "this is a model of Hugging Face's, and a checkpoint is needed; gpt-train --init_from", "--layers", 1,
                            checkpoint=foreign)
        shutil.rmtree(foreign)


if __name__ == "__main__":
    unittest.main()
