"""gpt-export: what transformers makes of the folder, and what gpt-train makes of one of theirs. Skipped where transformers is not installed."""

import json
import os
import struct
import subprocess
import unittest

import torch

import programs

try:
    import safetensors.torch
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
except ImportError as missing:
    transformers, why_not = None, str(missing)

TEXT = "12: the quick brown fox jumps over the lazy dog.\n\n  Strange  spaces , \ttabs isn't 1234 dogs.\na café, a naïve fox; 語\n"

FORMS = {
    "llama": {"model.norm": "rmsnorm"},
    "llama_untied": {"model.n_kv_head": 1, "model.tie_weights": "false", "model.bias": "true", "data.tokenizer": "byte"},
    "gpt2": {"model.norm": "layernorm", "model.mlp": "gelu", "model.position": "learned", "model.bias": "true", "data.tokenizer": "bpe:300"},
    "gpt2_plain": {"model.norm": "layernorm", "model.mlp": "gelu", "model.position": "learned", "model.tie_weights": "false",
                   "data.tokenizer": "gpt2"},
    "llama3": {"model.rope_scaling": "llama3", "model.rope_scaling_factor": 32, "model.rope_original_length": 16, "model.rope_theta": 100},
    "qwen2": {"model.qkv_bias": "true", "model.n_kv_head": 1},
    "qwen3": {"model.qk_norm": "true", "model.n_kv_head": 1, "model.head_dim": 24},
    "mistral": {"model.attention_window": 5, "model.window_pattern": "S", "model.last_layer_full": "false"},
    "ministral": {"model.attention_window": 5, "model.window_pattern": "SL"},
    "smollm3": {"model.rope_pattern": "RN"},
    "gemma": {"model.mlp": "geglu"},  # whose factors weights take over
    "gemma3_text": {"model.mlp": "geglu", "model.norm_place": "both", "model.qk_norm": "heads", "model.norm_unit_offset": "true",
                    "model.scaled_embedding": "true", "model.attention_window": 5, "model.window_pattern": "SL",
                    "model.rope_window_theta": 100},
    "olmo2": {"model.norm_place": "output", "model.qk_norm": "all", "model.tie_weights": "false"},
    "olmo3": {"model.norm_place": "output", "model.qk_norm": "all", "model.attention_window": 5, "model.window_pattern": "SL"},
    "arcee": {"model.mlp": "relu2"},
}


class Scratch(programs.WithText):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text.write_text(cls.text.read_text() + TEXT)

    @classmethod
    def run_of(cls, form):
        run = cls.root / form
        if not run.exists():
            options = {key.replace(".", "__"): value for key, value in FORMS[form].items()}
            programs.train(run, cls.text, training__max_steps=6, **options)
        return run

    def export(self, form, *words, check_code=0, output=None):
        output = output or self.root / f"{form}-exported"
        done = programs.run("gpt-export", "--checkpoint", self.run_of(form), "--output", output, *words, check_code=check_code)
        return output if check_code == 0 else done.stderr


class Folder(Scratch):
    """What can be seen without transformers."""

    def test_a_tokenizer_file_comes_through_a_run_unchanged(self):
        file = programs.SOURCE / "tests" / "tokenizer" / "hugging_face" / "llama2_legacy.json"
        run, exported = self.root / "characters", self.root / "characters-exported"
        programs.train(run, self.text, data__tokenizer=file, training__max_steps=2)
        programs.run("gpt-export", "--checkpoint", run, "--output", exported)
        self.assertEqual((exported / "tokenizer.json").read_bytes(), file.read_bytes())
        resumed = programs.train(run, self.text, data__tokenizer=file, training__max_steps=4)
        self.assertIn("resum", resumed.stderr.lower())
        programs.train(self.root / "characters-tuned", self.text, training__init_from=exported, training__max_steps=2)
        shown = programs.run("gpt-generate", "--checkpoint", run, "--prompt", "the fox", "--max-new-tokens", "8", "--temperature", "0")
        self.assertTrue(shown.stdout.startswith("the fox"), shown.stdout)

    def test_a_second_export_is_the_same_to_the_byte(self):
        first = self.export("llama", output=self.root / "first")
        names = sorted(path.name for path in first.iterdir())
        self.assertEqual(names, ["README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                                 "tokenizer_config.json"])
        before = {name: (first / name).read_bytes() for name in names}
        self.export("llama", output=first)  # over itself
        second = self.export("llama", output=self.root / "second")
        for folder in (first, second):
            self.assertEqual({path.name: path.read_bytes() for path in folder.iterdir()}, before)

    def test_a_chat_model_is_still_one_when_it_leaves(self):
        base, run, template = self.export("gpt2", output=self.root / "chat"), self.root / "chat-tuned", "{% for m in messages %}é{% endfor %}"
        says = {"bos_token_id": 9, "eos_token_id": [7, 8], "pad_token_id": 8, "top_k": 0}
        (base / "generation_config.json").write_text(json.dumps(says))
        (base / "config.json").write_text(json.dumps({**json.loads((base / "config.json").read_text()), "eos_token_id": 7}))
        (base / "chat_template.jinja").write_text(template)
        tiny = {key: value for key, value in programs.TINY.items() if not key.startswith("model.")}
        for steps in (1, 2):  # begun, and resumed
            programs.run("gpt-train", *programs.flags({**tiny, "data.text": self.text, "output_dir": run, "training.init_from": base,
                                                       "training.max_steps": steps}), check_code=0)
        self.assertEqual(torch.load(run / "ckpt.pt", weights_only=True)["text_format"]["eos_token_id"], (7, 8))
        quantized, gguf, again = self.root / "chat.pt", self.root / "chat.gguf", self.root / "chat-again"
        programs.run("gpt-export", "--checkpoint", run, "--output", again, check_code=0)
        self.assertEqual(json.loads((again / "generation_config.json").read_text()), says)
        self.assertEqual(json.loads((again / "config.json").read_text())["eos_token_id"], [7, 8])
        self.assertEqual((again / "chat_template.jinja").read_text(), template)
        programs.run("gpt-export", "--checkpoint", run, "--output", gguf, "--format", "gguf", check_code=0)
        self.assertIn(template.encode(), gguf.read_bytes())
        programs.run("gpt-export", "--checkpoint", run, "--output", quantized, "--format", "quantized", "--dtype", "int8", check_code=0)
        for path in (base, run, quantized):  # among 2,000 drawn tokens of a model that has learned nothing there is an end
            line = programs.run("gpt-generate", "--checkpoint", path, "--prompt", "the", "-n", 2000, "--temperature", 5, "--json", check_code=0)
            self.assertEqual(json.loads(line.stdout)["stop_reason"], "end of text", path)
    def test_what_was_written_is_json_for_programs(self):
        folder = self.root / "for_programs"
        done = programs.run("gpt-export", "--checkpoint", self.run_of("llama"), "--output", folder, "--json", "--quiet", check_code=0)
        self.assertEqual(done.stderr, "")
        written = json.loads(done.stdout)
        files = sorted(str(path) for path in folder.iterdir())
        self.assertEqual((written["output"], written["dtype"], written["files"]), (str(folder), "float32", files))
        self.assertEqual(written["bytes"], sum(os.path.getsize(path) for path in files))

    def test_the_card_says_what_the_model_is(self):
        card = (self.export("llama", "--dtype", "bfloat16") / "README.md").read_text()
        for part in ("in the form of Llama", "text.txt", "6 steps", "validation loss", "bfloat16", "gpt-train --", "--data.text text.txt"):
            self.assertIn(part, card)
        self.assertNotIn(str(self.root), card)

    def test_a_folder_with_other_things_is_left_alone(self):
        other = self.root / "other"
        other.mkdir()
        (other / "config.json").write_text("{}")
        self.assertIn("holds something else than an export", self.export("llama", check_code=2, output=other))
        self.assertIn("it is a file", self.export("llama", check_code=2, output=self.text))
        self.assertEqual([path.name for path in other.iterdir()], ["config.json"])

    @programs.long
    def test_a_gguf_file_is_written_over_by_an_export_alone(self):
        for form in ("llama", "gpt2_plain"):
            file = self.root / "ggufs" / "model.gguf"
            self.export(form, "--format", "gguf", "--dtype", "q8_0", output=file)
            self.assertEqual(file.read_bytes()[:4], b"GGUF")
            second = self.export(form, "--format", "gguf", "--dtype", "q8_0", output=self.root / "second.gguf")
            self.assertEqual(file.read_bytes(), second.read_bytes())
            self.assertEqual([path.name for path in file.parent.iterdir()], ["model.gguf"])
        self.assertIn("something else than an export", self.export("llama", "--format", "gguf", check_code=2, output=self.text))
        self.assertIn("it is a folder", self.export("llama", "--format", "gguf", check_code=2, output=self.root))

    def test_wrong_command_lines_say_what_to_write(self):
        for words, part in ((("--output", "x"), "--checkpoint"), (("--checkpoint", "x"), "--output FOLDER"),
                            (("--checkpoint", "x", "--output", "y", "--format", "onnx"), "must be one of huggingface"),
                            (("--checkpoint", "x", "--output", "y", "--dtype", "q8_0"), "add --format gguf"),
                            (("--checkpoint", "x", "--output", "y.gguf"), "add --format gguf")):
            self.assertIn(part, programs.run("gpt-export", *words, cwd=self.root, check_code=2).stderr)
        self.assertIn("cannot read", programs.run("gpt-export", "--checkpoint", self.root / "none.pt", "--output", self.root / "none",
                                                  check_code=4).stderr)
        self.assertFalse((self.root / "none").exists())

    def test_a_form_that_transformers_lacks_is_refused_by_name(self):
        run = self.root / "layernorm"
        note = programs.train(run, self.text, training__max_steps=1, model__norm="layernorm").stderr
        self.assertIn("gpt-export will not write this model for transformers or llama.cpp, which have no such form: model.norm layernorm", note)
        line = programs.run("gpt-export", "--checkpoint", run, "--output", self.root / "none", check_code=4).stderr
        self.assertIn("model.norm layernorm (Llama has rmsnorm)", line)

    def test_a_run_begins_with_an_exported_model(self):
        exported = self.export("llama")
        again = {key: value for key, value in programs.TINY.items() if not key.startswith("model.")}
        merged = {**again, "data.text": self.text, "output_dir": self.root / "tuned", "training.init_from": exported, "training.max_steps": 2}
        done = programs.run("gpt-train", *programs.flags(merged), check_code=0)
        self.assertIn(f"Beginning a new run with the weights of {exported}", done.stderr)
        tuned = torch.load(self.root / "tuned/ckpt.pt", weights_only=True)
        self.assertEqual(tuned["config"]["model"]["n_embd"], 32)
        self.assertEqual(tuned["tokenizer"], torch.load(self.run_of("llama") / "ckpt.pt", weights_only=True)["tokenizer"])
        first = programs.losses(self.root / "tuned")[1][0]
        self.assertLess(first, programs.losses(self.run_of("llama"))[1][0] - 0.2)
        exported.rename(self.root / "moved")  # it is not needed any more
        programs.run("gpt-train", *programs.flags({**merged, "training.max_steps": 3}), check_code=0)
        (self.root / "moved").rename(exported)
        line = programs.run("gpt-train", *programs.flags({**merged, "output_dir": self.root / "refused"}), "--n_layer", 3, check_code=2).stderr
        self.assertIn("model.n_layer 3", line)
        found = programs.checks(*programs.flags({**merged, "output_dir": self.root / "planned"}), "--no-probe", check_code=0)
        self.assertIn(str(exported), found["checkpoint"]["detail"])


@unittest.skipUnless(transformers, f"transformers is not installed: {'' if transformers else why_not}")
class Transformers(Scratch):
    def logits_of_ours(self, path, tokenizer):
        output = self.root / "logits.safetensors"
        subprocess.run([programs.BIN / "write_logits", path, output, *tokenizer], check=True)
        read = safetensors.torch.load_file(output)
        return read["ids"], read["logits"]

    def assert_same_logits(self, ours, folder, what, *tokenizer):
        ids, logits = self.logits_of_ours(ours, tokenizer)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            theirs = model(ids).logits
        self.assertEqual(theirs.shape, logits.shape)
        error = ((theirs - logits).abs().max() / logits.abs().max()).item()
        print(f"{what}: {error:.1e} of the largest logit, which is {logits.abs().max().item():.3g}")
        self.assertLess(error, 1e-5)

    def test_logits_are_those_of_the_checkpoint(self):
        for form in FORMS:
            with self.subTest(form):
                folder = self.export(form)
                self.assert_same_logits(self.run_of(form), folder, f"{form}, exported")
                self.assert_same_logits(folder, folder, f"{form}, read again")
                shards = self.export(form, "--max-shard-size", "2e-5", output=self.root / f"{form}-shards")  # of 20 kB
                self.assertGreater(len(list(shards.glob("model-*-of-*.safetensors"))), 1)
                self.assert_same_logits(self.run_of(form), shards, f"{form}, exported in several files")

    def test_weights_in_16_bits_are_rounded_ones(self):
        for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
            exact = safetensors.torch.load_file(self.export("gpt2") / "model.safetensors")
            rounded = safetensors.torch.load_file(self.export("gpt2", "--dtype", name) / "model.safetensors")
            self.assertEqual(exact.keys(), rounded.keys())
            for key, value in exact.items():
                self.assertTrue(torch.equal(value.to(dtype), rounded[key]), key)

    def ids_of_ours(self, form, sample):
        saved, documents, ids = (self.root / name for name in ("tokenizer.json", "documents", "ids"))
        saved.write_text(torch.load(self.run_of(form) / "ckpt.pt", weights_only=True)["tokenizer"])
        documents.write_bytes(struct.pack("<I", len(sample.encode())) + sample.encode())
        subprocess.run([programs.BIN / "encode_file", saved, documents, ids], check=True, capture_output=True)
        count, *values = (value for value, in struct.iter_unpack("<i", ids.read_bytes()))
        self.assertEqual(count, len(values))
        return values

    def test_ids_and_texts_are_those_of_the_tokenizer(self):
        for form in FORMS:
            with self.subTest(form):
                # Qwen2's own way of splitting takes the place of the file's in AutoTokenizer: findings/qwen2_tokenizers.sh
                kind = "PreTrainedTokenizerFast" if form == "qwen2" else "AutoTokenizer"
                tokenizer = getattr(transformers, kind).from_pretrained(self.export(form))
                self.assertIn(f"import AutoModelForCausalLM, {kind}\n", (self.export(form) / "README.md").read_text())
                ids = tokenizer(TEXT).input_ids
                self.assertEqual(ids, self.ids_of_ours(form, TEXT))
                self.assertEqual(tokenizer.decode(ids), TEXT)
        with self.assertRaises(Exception):
            transformers.AutoTokenizer.from_pretrained(self.export("llama"))("Ω is no character of the text")

    def test_models_of_transformers_are_read(self):
        torch.manual_seed(3)
        shape = {"vocab_size": 257, "initializer_range": 0.3}  # one more than a byte has values
        llama = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                 "max_position_embeddings": 24}
        configs = {
            "gpt2": transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=24, **shape),
            "llama": transformers.LlamaConfig(**llama, **shape, rope_theta=5000.0, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
            "llama, tied": transformers.LlamaConfig(**llama, **shape, tie_word_embeddings=True),
            "llama 3": transformers.LlamaConfig(**llama, **shape, rope_parameters={
                "rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16}),
            "linear": transformers.LlamaConfig(**llama, **shape, rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}),
            "qwen2": transformers.Qwen2Config(**llama, **shape, tie_word_embeddings=True),
            "qwen3": transformers.Qwen3Config(**llama, **shape, head_dim=12),
            "mistral": transformers.MistralConfig(**llama, **shape, sliding_window=5),
            "ministral": transformers.MinistralConfig(**llama, **shape, head_dim=8, sliding_window=5,
                                                      layer_types=["sliding_attention", "full_attention"]),
            "smollm3": transformers.SmolLM3Config(**llama, **shape, no_rope_layers=[0, 1], pad_token_id=None),
            "gemma": transformers.GemmaConfig(**llama, **shape, head_dim=12),
            "gemma 3": transformers.Gemma3TextConfig(**llama, **shape, head_dim=12, query_pre_attn_scalar=12, sliding_window=5,
                                                     layer_types=["sliding_attention", "full_attention"]),
            "olmo2": transformers.Olmo2Config(**llama, **shape, pad_token_id=None),
            "olmo3": transformers.Olmo3Config(**llama, **shape, pad_token_id=None, sliding_window=5),
            "arcee": transformers.ArceeConfig(**llama, **shape, attention_bias=True, mlp_bias=True),
        }
        for name, config in configs.items():
            for shard in ("50GB", "20KB"):
                with self.subTest(name, shard=shard):
                    folder = self.root / f"theirs-{name}-{shard}"
                    model = transformers.AutoModelForCausalLM.from_config(config)
                    with torch.no_grad():
                        for values in (values for values in model.parameters() if values.dim() == 1):  # norms begin at one
                            values.add_(0.3 * torch.randn_like(values))
                    model.save_pretrained(folder, max_shard_size=shard)
                    shards = len(list(folder.glob("*.safetensors")))
                    self.assertEqual(shards > 1, shard == "20KB")
                    self.assert_same_logits(folder, folder, f"{name} of transformers in {shards} files", "byte")


if __name__ == "__main__":
    unittest.main()
