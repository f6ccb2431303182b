"""training.distill_from: a pruned model learns from the one that it was cut out of, and from no other by mistake."""

import json
import re
import shutil
import unittest

import torch

import programs

SHORT = {key: value for key, value in programs.TINY.items() if not key.startswith("model.")}


class Distillation(programs.WithText):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.large, cls.smaller = cls.root / "large", cls.root / "smaller"
        programs.train(cls.large, cls.text, model__n_layer=3, model__n_head=4, model__n_hidden=128, training__max_steps=60)
        pruned = programs.run("gpt-prune", "--checkpoint", cls.large, "--data", cls.text, "--device", "cpu", "--threads", 1,
                              "--mlp", "50%", "--layers", 1, "--output", cls.smaller, check_code=0).stdout
        cls.loss_before = float(re.search(r"\n  loss +[\d.]+ +([\d.]+) ", pruned)[1])

    def train(self, name, check_code=0, **options):
        merged = {**SHORT, "data.text": self.text, "output_dir": self.root / name, "training.init_from": self.smaller}
        merged.update({key.replace("__", "."): value for key, value in options.items()})
        return programs.run("gpt-train", *programs.flags(merged), check_code=check_code)

    def distill(self, name, check_code=0, **options):
        return self.train(name, check_code, **{"training__distill_from": self.large, **options})

    def first_loss(self, name, **options):
        """Of the same batch, with nothing dropped out."""
        self.distill(name, training__max_steps=1, training__eval_interval=0, model__dropout=0, **options)
        return programs.losses(self.root / name)[1][0]

    def test_a_pruned_model_recovers(self):
        done = self.distill("recovered")
        self.assertRegex(done.stderr, rf"Teacher: {self.large}/ckpt.pt, [\d.]+k parameters; the training loss is 0.5 times the divergence from it "
                                      r"plus 0.5 times the cross entropy with the text; the validation loss is the cross entropy alone")
        self.train("alone")
        for name in ("recovered", "alone"):
            losses = programs.losses(self.root / name)
            self.assertLess(losses["val", 24], self.loss_before, name)
        # The validation loss is what gpt-eval finds, whatever the training loss is made of.
        report = programs.run("gpt-eval", "--checkpoint", self.root / "recovered", "--data", self.text, "--device", "cpu", "--threads", 1,
                              "--json", check_code=0).stdout
        evaluated = json.loads(report)["results"][0]["metrics"]["loss"]["value"]
        self.assertLess(evaluated, self.loss_before)

    def test_the_training_loss_is_mixed(self):
        text, teacher = (self.first_loss(f"weight_{weight}", training__distill_weight=weight) for weight in (0, 1))
        mixed = self.first_loss("mixed", training__distill_weight=0.25)
        self.assertAlmostEqual(mixed, 0.75 * text + 0.25 * teacher, delta=1e-4)
        self.assertGreater(text, teacher)
        # With LibTorch's operators, and with whole blocks computed again: the same.
        self.assertAlmostEqual(self.first_loss("aten", training__distill_weight=0.25, training__use_compile="false"), mixed, delta=1e-4)
        # A model that learns from itself has nothing to learn, at any temperature.
        own = self.first_loss("own", training__init_from=self.large, training__distill_weight=1, training__distill_temperature=3)
        self.assertAlmostEqual(own, 0, delta=1e-4)

    def test_it_resumes_to_the_bit_and_with_its_own_teacher(self):
        whole, parts, teacher = self.root / "whole", "parts", self.root / "teacher"
        shutil.copytree(self.large, teacher)
        same = {"training__checkpoint_interval": "4 steps", "training__gradient_checkpointing": "block", "training__distill_temperature": 2,
                "training__lr_schedule": "constant"}
        self.distill("whole", training__max_steps=8, **same)
        self.distill(parts, training__max_steps=4, training__distill_from=teacher, **same)
        done = self.distill(parts, training__max_steps=8, **same)  # the same file in another place
        self.assertIn(f"changed since the checkpoint: training.distill_from: {teacher}/ckpt.pt -> {self.large}/ckpt.pt", done.stderr)
        expected, found = programs.losses(whole), programs.losses(self.root / parts)
        self.assertEqual({step: found[step] for step in range(1, 9)}, {step: expected[step] for step in range(1, 9)})
        weights = [torch.load(run / "ckpt.pt", weights_only=True)["model"] for run in (whole, self.root / parts)]
        self.assertTrue(all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0]))

        line = self.distill(parts, 4, training__max_steps=9, training__distill_from=self.smaller, **same).stderr
        self.assertIn(f"training.distill_from: {self.smaller}/ckpt.pt has other weights than the teacher of this run", line)
        shutil.copy(self.smaller / "ckpt.pt", teacher / "ckpt.pt")
        line = self.distill(parts, 4, training__max_steps=9, training__distill_from=teacher, **same).stderr
        self.assertIn("has other weights than the teacher of this run", line)
        done = self.distill(parts, training__max_steps=9, training__distill_from="none", **same)
        self.assertIn(f"changed since the checkpoint: training.distill_from: {self.large}/ckpt.pt -> ", done.stderr)

    def test_a_teacher_of_something_else_is_refused(self):
        other = self.root / "bytes"
        programs.train(other, self.text, training__max_steps=1, data__tokenizer="byte")
        line = self.distill("refused", 2, training__distill_from=other).stderr
        self.assertRegex(line, rf"error: training.distill_from: {other}/ckpt.pt has another tokenizer than the run \(256 tokens, and the "
                               r"run has \d+\), so its predictions are about other tokens; name a model")
        shorter = self.root / "shorter"
        programs.train(shorter, self.text, training__max_steps=1, model__block_size=8)
        line = self.distill("refused", 2, training__distill_from=shorter).stderr
        self.assertIn("reads sequences of at most 8 tokens, and those of the run have 16; set training.sequence_length: 8", line)
        line = self.distill("refused", 4, training__distill_from=self.root / "nothing").stderr
        self.assertIn(f"training.distill_from: cannot read {self.root}/nothing/ckpt.pt: No such file", line)
        self.assertFalse((self.root / "refused/ckpt.pt").exists())
        self.assertIn("No effect here: training.distill_weight (training.distill_from names no teacher)",
                      self.train("idle", training__max_steps=1, training__distill_weight=0.3).stderr)

    def test_several_processes_each_have_it(self):
        self.distill("one", training__max_steps=2, model__dropout=0)
        self.distill("two", training__max_steps=2, model__dropout=0, distributed__processes=2, distributed__zero=2)
        one, two = programs.losses(self.root / "one"), programs.losses(self.root / "two")
        for step in (1, 2):
            self.assertAlmostEqual(two[step][0], one[step][0], delta=1e-3)

    def test_a_model_of_hugging_faces_teaches(self):
        exported = self.root / "exported"
        programs.run("gpt-export", "--checkpoint", self.large, "--output", exported, check_code=0)
        self.assertAlmostEqual(self.first_loss("of_exported", training__distill_from=exported), self.first_loss("of_large"), delta=1e-5)

    def test_gpt_diagnose_plans_with_it(self):
        words = programs.flags({**SHORT, "data.text": self.text, "output_dir": self.root / "planned", "training.init_from": self.smaller})
        alone, both = (programs.checks(*words, *more, "--no-probe", check_code=0)
                       for more in ((), ("--distill_from", self.large)))
        values = both["memory of the run"]["values"]
        self.assertEqual(values["teacher_bytes"], 4 * torch_values(self.large))
        self.assertGreater(both["compute"]["values"]["flops_per_token"], alone["compute"]["values"]["flops_per_token"])


def torch_values(run):
    """Of its parameters, each aligned to 256."""
    weights = torch.load(run / "ckpt.pt", weights_only=True)["model"]
    return sum((tensor.numel() + 255) // 256 * 256 for name, tensor in weights.items() if name != "lm_head.weight")


if __name__ == "__main__":
    unittest.main()
