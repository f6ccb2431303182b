"""training.ema_decay: averages of the weights against a replay of numbered checkpoints, and what takes them on request."""

import json
import re
import unittest

import torch

import programs
from checkpoints import load, same

DECAY = 0.75
OPTIONS = {"training__ema_decay": DECAY, "training__average_after": 0.25, "training__max_steps": 12, "training__eval_interval": 4,
           "training__sample_interval": 6, "training__sample_tokens": 8}


def averages_in(checkpoint) -> dict:
    return {name: slots["average"] for name, slots in checkpoint["optimizer"]["state"].items()}


class Averages(programs.WithText):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.train("whole", training__checkpoint_interval=1, training__keep_last=100, training__async_checkpoint="true")
        cls.end = load(cls.root / "whole/ckpt.pt")

    @classmethod
    def train(cls, run, *, check_code=0, **options):
        return programs.train(cls.root / run, cls.text, check_code=check_code, **{**OPTIONS, **options}).stderr

    def losses_of(self, run, **options):
        """Of the last checkpoint, by --eval-only with these options."""
        merged = {"output_dir": self.root / run, "data.text": self.text, **{key.replace("__", "."): value for key, value in options.items()}}
        return json.loads(programs.run("gpt-train", "--eval-only", "--json", *programs.flags({**programs.TINY, **merged}), check_code=0).stdout)

    def continued(self, checkpoint, *words):
        return programs.run("gpt-generate", "the", "--checkpoint", checkpoint, "--temperature", 0, "-n", 20, "--device", "cpu", *words,
                            check_code=0)

    def test_they_are_the_replay_of_every_update(self):
        self.assertIn("Using fused AdamW, with averages of the weights (ema_decay 0.75)", self.output)
        averages = None
        for step in range(1, 13):
            saved = load(self.root / f"whole/ckpt_step_{step:08}.pt")
            values = {name: value.double() for name, value in saved["model"].items() if name in saved["optimizer"]["state"]}
            begins = step - 1 <= 0.25 * 12
            averages = values if begins else {name: DECAY * averages[name] + (1 - DECAY) * value for name, value in values.items()}
            for name, average in averages_in(saved).items():
                self.assertEqual(average.dtype, torch.float32)
                bound = 0 if begins else 4 * 12 * 2**-24 * averages[name].abs().max().item()
                self.assertLessEqual((average.double() - averages[name]).abs().max().item(), bound, f"{name} at {step}")
        self.assertFalse(same(averages_in(saved), {name: saved["model"][name] for name in averages}))

    def test_a_resumed_run_is_the_run_that_never_stopped(self):
        run = self.root / "resumed"
        run.mkdir()
        (run / "ckpt.pt").write_bytes((self.root / "whole/ckpt_step_00000007.pt").read_bytes())
        output = self.train("resumed")
        self.assertNotIn("averages of the weights:", output)
        end = load(run / "ckpt.pt")
        self.assertTrue(same(end["optimizer"], self.end["optimizer"]) and same(end["model"], self.end["model"]))

    def test_two_processes_that_divide_them_have_those_of_one(self):
        self.train("one", distributed__lanes=2)
        self.train("two", distributed__lanes=2, distributed__processes=2, distributed__zero=2, training__evaluate="averages",
                   training__eval_batches=0)
        one, two = load(self.root / "one/ckpt.pt"), load(self.root / "two/ckpt.pt")
        self.assertTrue(same(one["optimizer"], two["optimizer"]) and same(one["model"], two["model"]))
        last = [record for record in programs.metrics(self.root / "two") if "val_loss" in record][-1]
        found = self.losses_of("one", training__evaluate="averages", training__ema_decay=DECAY)
        self.assertAlmostEqual(found["val_loss"], last["val_loss"], places=5)

    def test_evaluations_take_them_on_request(self):
        self.train("evaluated", training__evaluate="averages", training__eval_batches=0)
        end = load(self.root / "evaluated/ckpt.pt")
        self.assertTrue(same(end["optimizer"], self.end["optimizer"]), "what is evaluated changes no update")
        losses = [record["val_loss"] for record in programs.metrics(self.root / "evaluated") if "val_loss" in record]
        averages = self.losses_of("evaluated", training__evaluate="averages", training__ema_decay=DECAY)
        weights = self.losses_of("evaluated", training__evaluate="weights")
        self.assertAlmostEqual(averages["val_loss"], losses[-1], places=5)
        self.assertNotAlmostEqual(weights["val_loss"], losses[-1], places=3)
        self.assertEqual(end["best_val_loss"], min(losses))

    def test_texts_and_exports_take_them_on_request(self):
        run, files = self.root / "whole", set()
        for words in ((), ("--averages",)):
            programs.run("gpt-export", "--checkpoint", run, "--output", self.root / "exported", *words, check_code=0)
            files.add((self.root / "exported/model.safetensors").read_bytes())
            exported, own = self.continued(self.root / "exported"), self.continued(run, *words)
            self.assertEqual(exported.stdout, own.stdout)
            self.assertEqual("averages of its weights" in own.stderr, bool(words))
        self.assertEqual(len(files), 2)
        programs.run("gpt-export", "--checkpoint", run, "--output", self.root / "q.pt", "--format", "quantized", "--dtype", "int8",
                     "--averages", check_code=0)
        self.assertEqual(self.continued(self.root / "q.pt").stdout, self.continued(run, "--averages", "--dtype", "int8").stdout)

    def test_a_run_begins_and_drops_them_and_says_so(self):
        self.train("without", training__ema_decay=0, training__max_steps=6)
        refused = programs.run("gpt-generate", "the", "--checkpoint", self.root / "without", "--averages", check_code=4).stderr
        self.assertIn("has no averages of its weights, which a run keeps with training.ema_decay", refused)
        output = self.train("without", training__max_steps=8)
        self.assertIn("The checkpoint has no averages of the weights: they begin with its weights", output)
        self.assertIn("average", load(self.root / "without/ckpt.pt")["optimizer"]["state"]["transformer.wte.weight"])
        output = self.train("without", training__ema_decay=0, training__max_steps=10)
        self.assertIn("The averages of the weights in the checkpoint are dropped, because training.ema_decay is 0", output)
        self.assertNotIn("average", load(self.root / "without/ckpt.pt")["optimizer"]["state"]["transformer.wte.weight"])

    def test_what_cannot_be_is_refused_with_a_cure(self):
        output = self.train("refused", training__ema_decay=0, training__evaluate="averages", check_code=2)
        self.assertRegex(output, re.escape("evaluate takes the averages of the weights, and with an ema_decay of 0 there are none") + ".*0.999")


if __name__ == "__main__":
    unittest.main()
