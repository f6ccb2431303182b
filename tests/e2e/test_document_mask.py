"""data.document_mask: attention stays within a document, in training and validation."""

import contextlib
import io
import json
import pathlib
import random
import sys
import tempfile
import unittest
from unittest import mock

import numpy
import torch

import programs
from checkpoints import load, same

sys.path.insert(0, str(programs.SOURCE / "scripts"))
import pytorch_baseline as baseline

torch.set_num_threads(1)  # more would wait for each other longer than they compute
WORDS = "the a fox dog jumps runs over under lazy quick brown and then again never stops".split()
STEPS = 8
ATTENTION = torch.nn.functional.scaled_dot_product_attention
# Grouped heads, and sequences of about four documents.
OPTIONS = {"model.n_head": 4, "model.n_kv_head": 2, "model.block_size": 48, "model.vocab_multiple": 1, "training.max_steps": STEPS,
           "data.document_mask": "true"}


def write_documents(path):
    """Each repeats a word of its own, so that what a model learns depends on which documents it sees."""
    words = random.Random(1)
    texts = (" ".join([words.choice(WORDS)] * words.randrange(2, 14)) for _ in range(400))
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


class DocumentMask(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        write_documents(cls.root / "documents.jsonl")
        programs.run("gpt-prepare", "--input", cls.root / "documents.jsonl", "--output", cls.root / "data", "--tokenizer", "bpe:300",
                     "--validation_fraction", 0.2, "--deduplicate", "none", check_code=0)
        cls.bin = cls.root / "data/tokens_bpe.bin"
        metadata = json.loads((cls.root / "data/tokens_bpe_metadata.json").read_text())
        tokens = torch.from_numpy(numpy.fromfile(cls.bin, dtype="<u2").astype(numpy.int64))
        cls.tokens, cls.validation = tokens.split([metadata["train"]["tokens"], metadata["validation"]["tokens"]])
        special = json.loads((cls.root / "data" / metadata["tokenizer"]).read_text())["added_tokens"]
        cls.end = next(token["id"] for token in special if token["content"] == "<|endoftext|>")
        cls.vocabulary = metadata["vocab_size"]
        cls.run_folder = cls.root / "run"
        cls.log = cls.train(cls.run_folder)

    @classmethod
    def words(cls, folder, **options):
        options = {key.replace("__", "."): value for key, value in options.items()}
        return programs.flags({**programs.TINY, **OPTIONS, "data.bin": cls.bin, "output_dir": folder, **options})

    @classmethod
    def train(cls, folder, check_code=0, **options):
        return programs.run("gpt-train", *cls.words(folder, **options), check_code=check_code).stderr

    def masked(self, **config):
        """PyTorch's model, in which a mask says what each token sees: those before it with as many separators up to them."""
        end, current = self.end, {}

        class Masked(baseline.GPT):
            def forward(self, ids, targets, label_smoothing):
                number = (ids == end).cumsum(1)
                same_document = number.unsqueeze(1) == number.unsqueeze(2)
                current["mask"] = same_document.tril().unsqueeze(1)  # (B, 1, T, T)
                return super().forward(ids, targets, label_smoothing)

        def attend(q, k, v, is_causal, **others):
            return ATTENTION(q, k, v, attn_mask=current["mask"], **others)

        patched = mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", attend)
        patched.start()
        self.addCleanup(patched.stop)
        return Masked(baseline.model_config(config, self.vocabulary))

    def read_weights(self, model, checkpoint):
        weights = load(checkpoint)["model"]
        model.load_state_dict({name.removeprefix("transformer."): value for name, value in weights.items()})

    def test_losses_are_those_of_pytorch_with_a_mask(self):
        for position in ("rope", "learned"):
            with self.subTest(position):
                options = {"model__position": position, "model__dropout": 0}
                folder = self.root / position
                self.train(folder, **options)
                self.train(folder / "initial", **options, training__max_steps=1, training__learning_rate=0, training__min_lr=0)
                config_file = folder / "config.yaml"
                config_file.write_text(programs.run("gpt-train", *self.words(folder, **options), "--print-config", check_code=0).stdout)
                config = baseline.read_config(config_file)
                model = self.masked(**config)
                self.read_weights(model, folder / "initial/ckpt.pt")
                training = {key.removeprefix("training."): value for key, value in config.items() if key.startswith("training.")}
                written = io.StringIO()
                with contextlib.redirect_stdout(io.StringIO()):
                    baseline.train(model, self.tokens, training, 48, config["seed"], STEPS, "float32", written)
                theirs = [json.loads(line)["loss"] for line in written.getvalue().splitlines()]
                ours = programs.losses(folder)
                self.assertEqual(len(theirs), STEPS)
                for step, loss in enumerate(theirs, 1):
                    self.assertAlmostEqual(ours[step][0], loss, delta=1e-4 * loss, msg=f"step {step}")
                self.check_validation(model.eval(), folder)

    def check_validation(self, model, folder):
        self.read_weights(model, folder / "ckpt.pt")
        T, all_targets, total = 48, len(self.validation) - 1, 0
        with torch.no_grad():
            for begin in range(0, all_targets, T):
                count = min(T, all_targets - begin)
                ids = self.validation[begin : begin + count + 1].unsqueeze(0)
                total += count * model(ids[:, :-1], ids[:, 1:], 0).item()
        words = ["--config", folder / "effective_config.yaml", "--resume_from", folder, "--eval-only"]
        said = programs.run("gpt-train", *words, check_code=0).stdout
        ours = float(said.split("val loss ")[1].split()[0])
        self.assertAlmostEqual(ours, total / all_targets, delta=2e-4)
        without = programs.run("gpt-train", *words, "--data.document_mask", "false", check_code=0).stdout
        self.assertNotAlmostEqual(float(without.split("val loss ")[1].split()[0]), ours, delta=1e-3)

    def test_all_stages_of_a_model_see_the_same_documents(self):
        folder = self.root / "stages"
        self.train(folder, distributed__processes=2, distributed__pipeline_parallel=2)
        one, two = programs.losses(self.run_folder), programs.losses(folder)
        self.assertEqual(two[1][0], one[1][0])  # a tied table's gradients are added in another order
        self.assertEqual(two.keys(), one.keys())
        for step in one:
            torch.testing.assert_close(two[step], one[step], rtol=1e-4, atol=1e-4)

    def test_a_run_says_it_and_goes_on_to_the_bit(self):
        self.assertRegex(self.log,
                         r"Documents: attention stays within a document, which begins with <\|endoftext\|>; one has about \d+ tokens")
        stopped = self.root / "stopped"
        options = {"data__stages": "[{from: 0, block_size: 24}, {from: 3}]"}
        self.train(self.root / "whole", **options)
        self.train(stopped, **options, training__checkpoint_interval=5, training__keep_last=9)
        (stopped / "ckpt.pt").write_bytes((stopped / "ckpt_step_00000005.pt").read_bytes())
        self.train(stopped, **options, training__checkpoint_interval=5, training__keep_last=9)
        self.assertTrue(same(load(self.root / "whole/ckpt.pt")["model"], load(stopped / "ckpt.pt")["model"]))
        refused = self.train(self.run_folder, check_code=4, training__max_steps=STEPS + 1, data__document_mask="false")
        self.assertIn("its configuration differs (data.document_mask: true -> false)", refused)

    def test_without_it_documents_see_each_other(self):
        self.train(self.root / "without", data__document_mask="false")
        self.assertNotEqual(programs.losses(self.root / "without")[1], programs.losses(self.run_folder)[1])

    def test_operators_and_savers_of_memory_agree(self):
        ours = programs.losses(self.run_folder)
        for name, options in {"recomputed": {"training__gradient_checkpointing": "block"},
                              "ahead": {"data__num_workers": 2, "data__resident": "off"}}.items():
            self.train(self.root / name, **options)
            self.assertEqual(programs.losses(self.root / name), ours, name)
        without_dropout = self.root / "without_dropout"
        self.train(without_dropout, model__dropout=0)
        self.train(self.root / "uncompiled", model__dropout=0, training__use_compile="false")
        a, b = (programs.losses(folder) for folder in (without_dropout, self.root / "uncompiled"))
        for step in range(1, STEPS + 1):
            self.assertAlmostEqual(a[step][0], b[step][0], delta=1e-4 * a[step][0], msg=f"step {step}")

    def test_processes_compute_the_run_of_one(self):
        ours = programs.losses(self.run_folder)
        for name, options in {"zero": {"distributed__zero": 3}, "tensor": {"distributed__tensor_parallel": 2}}.items():
            folder = self.root / name
            self.train(folder, **options, distributed__processes=2)
            theirs = programs.losses(folder)
            for step in range(1, STEPS + 1):
                self.assertAlmostEqual(theirs[step][0], ours[step][0], delta=1e-4 * ours[step][0], msg=f"{name}, step {step}")

    def test_data_without_documents(self):
        text = programs.write_text(self.root)
        flags = {**programs.TINY, "data.text": text, "data.document_mask": "true", "training.max_steps": 1}
        refused = programs.run("gpt-train", *programs.flags({**flags, "output_dir": self.root / "char"}), check_code=2).stderr
        self.assertIn("data.document_mask: true needs documents, and this tokenizer marks no end of text; set", refused)
        flags = {**flags, "data.tokenizer": "bpe:280"}
        done = programs.run("gpt-train", *programs.flags({**flags, "output_dir": self.root / "idle"}), check_code=0).stderr
        self.assertIn("data.document_mask changes nothing: the training data is one document, without <|endoftext|> inside", done)
        found = programs.checks(*programs.flags({**flags, "output_dir": self.root / "planned"}), "--no-probe", check_code=0)
        self.assertEqual((found["documents"]["status"], found["documents"]["fix"]), ("warn", "set data.document_mask: false"))

    def test_diagnosis_and_gpus(self):
        words = self.words(self.root / "planned")
        found = programs.checks(*words, "--no-probe", check_code=0)["documents"]
        self.assertEqual(found["status"], "pass")
        self.assertIn("attention stays within a document", found["detail"])
        of_megatron = ["--reset_attention_mask" if word == "--data.document_mask" else word for word in words]
        self.assertEqual(programs.checks(*of_megatron, "--no-probe", check_code=0)["documents"]["status"], "pass")
        place = words.index("--device")
        on_card = programs.checks(*words[:place], *words[place + 2 :], "--no-probe", "--gpu", "t4", check_code=1)["settings"]
        self.assertEqual(on_card["status"], "fail")
        self.assertEqual(on_card["detail"], "document_mask is computed on a CPU alone so far")
        self.assertEqual(on_card["fix"], "set document_mask to false, or device to cpu")


if __name__ == "__main__":
    unittest.main()
