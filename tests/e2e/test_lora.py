"""training.lora_rank: adapters of a model that stays as it is, merged with it or alone. What peft and transformers make of them is skipped
where they are not installed."""

import json
import pathlib
import random
import re
import shutil
import struct
import subprocess
import unittest

import torch

import programs

try:
    import peft
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
except ImportError as missing:
    peft, why_not = None, str(missing)

RANK = 2
FORMS = {
    "llama": {"model.norm": "rmsnorm", "model.n_kv_head": 1},
    "gpt2": {"model.norm": "layernorm", "model.mlp": "gelu", "model.position": "learned", "model.bias": "true"},
}


def read_safetensors(path: pathlib.Path) -> dict:
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, of in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = of["data_offsets"]
        tensors[name] = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]), dtype=torch.float32).reshape(of["shape"])
    return tensors


def write_safetensors(path: pathlib.Path, tensors: dict):
    header, data = {}, b""
    for name, values in tensors.items():
        own = values.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(own)]}
        data += own
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


class Scratch(programs.WithText):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.again = {key: value for key, value in programs.TINY.items() if not key.startswith("model.") and key != "training.learning_rate"}

    @classmethod
    def base_of(cls, form):
        """An exported folder."""
        folder = cls.root / f"{form}-base"
        if not folder.exists():
            run = cls.root / form
            programs.train(run, cls.text, training__max_steps=12, **{key.replace(".", "__"): value for key, value in FORMS[form].items()})
            programs.run("gpt-export", "--checkpoint", run, "--output", folder, check_code=0)
        return folder

    @classmethod
    def tuned_of(cls, form):
        run = cls.root / f"{form}-tuned"
        if not run.exists():
            cls.tune(run, cls.base_of(form))
        return run

    @classmethod
    def flags_of(cls, run, base, **options):
        merged = {**cls.again, "data.text": cls.text, "output_dir": run, "training.init_from": base, "training.max_steps": 8,
                  "training.lora_rank": RANK, "training.learning_rate": 0.02}
        merged.update({key.replace("__", "."): value for key, value in options.items()})
        return programs.flags(merged)

    @classmethod
    def tune(cls, run, base, *words, check_code=0, **options):
        return programs.run("gpt-train", *cls.flags_of(run, base, **options), *words, check_code=check_code)

    WHOLE = {"training__lora_also_train": "wte, ln_f"}

    @classmethod
    def whole_of(cls, form):
        run = cls.root / f"{form}-also-trained"
        if not run.exists():
            cls.tune(run, cls.base_of(form), **cls.WHOLE)
        return run

    def begin_with(self, run, folder, check_code=0):
        """A run of one step that leaves the weights as they are."""
        return self.tune(run, folder, training__lora_rank=0, training__max_steps=1, training__learning_rate=0, training__min_lr=0,
                         check_code=check_code)

    def export(self, run, name, *words):
        programs.run("gpt-export", "--checkpoint", run, "--output", self.root / name, *words, check_code=0)
        return self.root / name


class Base(Scratch):
    """What the weights that adapters go with are kept in, and where they are."""

    def expect_goes_on(self, base, **options):
        """A run that is killed and goes on is the run that was not."""
        straight, killed = (self.root / f"{pathlib.Path(base).name}-{name}" for name in ("straight", "killed"))
        cadence = {"training__checkpoint_interval": "2 steps", "training__lora_dropout": 0.1, **options}
        self.tune(straight, base, **cadence)
        process = subprocess.Popen(programs.command("gpt-train", *self.flags_of(killed, base, **cadence)), stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if re.match(r"step +5/8", line):
                break
        process.kill()
        process.stderr.close()
        process.wait(timeout=programs.HANGS)
        self.assertIn("Resuming from", self.tune(killed, base, **cadence).stderr)
        self.assertEqual(programs.losses(killed), programs.losses(straight))
        return killed

    def test_a_run_in_few_bits_that_was_killed_goes_on_as_it_was(self):
        for form, kept in (("llama", "int4"), ("gpt2", "int8")):
            with self.subTest(form):
                base = self.base_of(form)
                run = self.expect_goes_on(base, training__lora_base=kept)
                # The adapters are merged with the base as it was, not with what was made of it.
                original = read_safetensors(base / "model.safetensors")
                merged = read_safetensors(self.export(run, f"{form}-{kept}-merged") / "model.safetensors")
                adapter = self.export(run, f"{form}-{kept}-adapter", "--adapter")
                settings, factors = json.loads((adapter / "adapter_config.json").read_text()), read_safetensors(adapter / "adapter_model.safetensors")
                self.assertEqual(settings["lora_dropout"], 0.1)
                for name, value in merged.items():
                    module = name.removesuffix(".weight")
                    expected = original[name]
                    if module in settings["target_modules"]:
                        a, b = (factors[f"base_model.model.{module}.lora_{factor}.weight"] for factor in "AB")
                        added = settings["alpha_pattern"].get(module, settings["lora_alpha"]) / a.shape[0] * (b @ a)
                        expected = expected + (added.T if settings["fan_in_fan_out"] else added)
                    torch.testing.assert_close(value, expected, rtol=0, atol=1e-6 * expected.abs().max().item())

    @unittest.skipUnless(programs.ALL, "some minutes; GPT_ALL_TESTS=1 runs it")
    def test_fifty_kills_leave_no_trace(self):
        moments, kills = random.Random(7), 0
        for kept in ("auto", "bfloat16", "int8", "int4"):
            straight, killed = self.root / f"straight-{kept}", self.root / f"often-killed-{kept}"
            options = {"training__lora_base": kept, "training__lora_dropout": 0.1, "training__max_steps": 4000, "training__log_interval": 1000,
                       "training__eval_interval": "1000 steps", "training__checkpoint_interval": "50 steps"}
            self.tune(straight, self.base_of("llama"), **options)
            flags = self.flags_of(killed, self.base_of("llama"), **options)
            for _ in range(13):
                process = subprocess.Popen(programs.command("gpt-train", *flags), stderr=subprocess.DEVNULL)
                try:
                    process.wait(timeout=moments.uniform(0.3, 2))
                except subprocess.TimeoutExpired:
                    process.kill()
                    kills += 1
                process.wait(timeout=programs.HANGS)
            programs.run("gpt-train", *flags, check_code=0)
            ended, expected = (torch.load(run / "ckpt.pt", weights_only=True) for run in (killed, straight))
            self.assertEqual((ended["step"], programs.losses(killed)), (4000, programs.losses(straight)))
            for name, value in expected["model"].items():
                self.assertTrue(torch.equal(ended["model"][name], value), (kept, name))
                for slot, moment in expected["optimizer"]["state"][name].items():
                    self.assertTrue(torch.equal(ended["optimizer"]["state"][name][slot], moment), (kept, name, slot))
        self.assertGreaterEqual(kills, 40)

    def test_a_base_in_few_bits_takes_less_and_learns_as_much(self):
        base, weights, losses = self.base_of("llama"), {}, {}
        for kept in ("auto", "bfloat16", "int8", "int4"):
            run = self.root / f"kept-{kept}"
            self.tune(run, base, training__lora_base=kept)
            losses[kept] = programs.losses(run)["val", 8]
            report = programs.run("gpt-train", *programs.flags({**self.again, "data.text": self.text, "output_dir": run}), "--eval-only", "--json",
                                  check_code=0)
            self.assertAlmostEqual(json.loads(report.stdout)["val_loss"], losses[kept], delta=1e-6)
            weights[kept] = (run / "ckpt.pt").stat().st_size
        # Rounding to 4 bits changes a loss of some 2 by less than 0.1, which learning changes by more than 0.5.
        for kept in losses:
            self.assertLess(abs(losses[kept] - losses["auto"]), 0.1, losses)
        self.assertLess(max(weights.values()), 1.01 * min(weights.values()), "no file has the base, in whatever form")

    def test_all_programs_put_a_checkpoint_together_with_its_base(self):
        run = self.root / "read-by-all"
        self.tune(run, self.base_of("llama"), training__lora_base="int8")
        for words in (("gpt-diagnose", "--checkpoint", run / "ckpt.pt"), ("gpt-eval", "--checkpoint", run, "--data", self.text),
                      ("gpt-prune", "--checkpoint", run, "--mlp", "25%", "--data", self.text, "--output", self.root / "pruned"),
                      ("gpt-generate", "--checkpoint", self.root / "pruned", "--prompt", "12", "--max-new-tokens", "4"),
                      ("gpt-generate", "--checkpoint", run, "--prompt", "12", "--max-new-tokens", "4", "--dtype", "int4"),
                      ("gpt-export", "--checkpoint", run, "--format", "quantized", "--output", self.root / "read.pt", "--dtype", "int8"),
                      ("gpt-export", "--checkpoint", run, "--adapter", "--format", "gguf", "--output", self.root / "read.gguf")):
            programs.run(words[0], *words[1:], check_code=0)
        again = self.root / "adapted-again"
        self.tune(again, run)
        saved = torch.load(again / "ckpt.pt", weights_only=True)
        self.assertEqual(saved["base"]["path"], str(run / "ckpt.pt"))
        self.assertEqual(programs.run("gpt-generate", "--checkpoint", again, "--prompt", "12", check_code=0).returncode, 0)
        self.assertEqual((again / "base.pt").stat().st_ino, (run / "ckpt.pt").stat().st_ino, "a second name of the same file")

    def test_a_base_that_was_moved_is_found_and_one_that_has_changed_is_not(self):
        place = self.root / "moving"
        base = pathlib.Path(shutil.copytree(self.base_of("llama"), place / "base"))
        run, words = place / "run", ("--prompt", "12", "--max-new-tokens", "8", "--temperature", "0")
        self.tune(run, base)
        text = programs.run("gpt-generate", "--checkpoint", run, *words, check_code=0).stdout
        for moved in (run / "base", place / "base"):
            base = base.rename(moved)
            self.assertEqual(programs.run("gpt-generate", "--checkpoint", run, *words, check_code=0).stdout, text)
        place = place.rename(self.root / "moved-together")
        base, run = place / "base", place / "run"
        self.assertEqual(programs.run("gpt-generate", "--checkpoint", run, *words, check_code=0).stdout, text)
        weights = bytearray((base / "model.safetensors").read_bytes())
        weights[-1] ^= 1
        (base / "model.safetensors").write_bytes(weights)
        line = programs.run("gpt-generate", "--checkpoint", run, *words, check_code=4).stderr
        self.assertIn("it has adapters alone, of the model", line)
        self.assertIn("there is none with its hash", line)

    def test_a_base_of_ours_may_go_on(self):
        """What its run replaces has another name in the run that began with it."""
        base, run = self.root / "going-on", self.root / "of-going-on"
        programs.train(base, self.text, training__max_steps=6)
        self.tune(run, base)
        words = ("gpt-generate", "--checkpoint", run, "--prompt", "12", "--max-new-tokens", "8", "--temperature", "0")
        text = programs.run(*words, check_code=0).stdout
        programs.train(base, self.text, training__max_steps=8)
        self.assertEqual(programs.run(*words, check_code=0).stdout, text)
        self.assertIn("after step 8", self.tune(run, base, training__max_steps=9).stderr)

    def test_a_vocabulary_that_a_run_changes_is_in_its_checkpoint(self):
        run, options = self.root / "bytes", {"training__lora_base": "int4", "data__tokenizer": "byte"}
        self.tune(run, self.base_of("llama"), **options)
        saved = torch.load(run / "ckpt.pt", weights_only=True)
        self.assertEqual({name for name in saved["model"] if "lora" not in name}, {"transformer.wte.weight", "lm_head.weight"}, "tied")
        programs.run("gpt-generate", "--checkpoint", run, "--prompt", "12", "--max-new-tokens", "4", check_code=0)
        self.assertIn("after step 8", self.tune(run, self.base_of("llama"), training__max_steps=9, **options).stderr)

    def test_what_does_not_go_with_few_bits_is_refused_in_a_line(self):
        for words, message in ((("--quantized_forward", "int8"), "with scales of other groups"),
                               (("--pipeline_parallel", "2", "--processes", "2"), "of which each stage has some")):
            self.assertIn(message, self.tune(self.root / "none", self.base_of("llama"), *words, check_code=2, training__lora_base="int4").stderr)


class Lora(Scratch):
    def test_adapters_alone_are_trained_and_the_run_goes_on(self):
        base, run = self.base_of("llama"), self.root / "alone"
        done = self.tune(run, base, training__checkpoint_interval="2 steps")
        self.assertRegex(done.stderr, r"LoRA: adapters of rank 2 \(all-linear\), times 2: [0-9.]+k parameters are trained, [0-9.]+ % of [0-9.]+k")
        begun, saved = (torch.load(path / "ckpt.pt", weights_only=True) for path in (self.root / "llama", run))
        adapters = set(saved["model"])
        self.assertFalse(adapters & set(begun["model"]), "the base is named")
        self.assertEqual(saved["base"]["path"], str(base))
        self.assertEqual(len(adapters), 2 * 2 * 5)
        self.assertEqual(set(saved["optimizer"]["state"]), adapters, "nothing else has moments")
        self.assertTrue(all(saved["model"][name].abs().max() > 0 for name in adapters))
        losses = programs.losses(run)
        self.assertLess(losses["val", 8], programs.losses(self.root / "llama")["val", 12])
        self.assertIn("after step 8", self.tune(run, base, training__max_steps=9).stderr)
        line = self.tune(run, base, check_code=4, training__lora_rank=3).stderr
        self.assertIn("its configuration differs (training.lora_rank: 2 -> 3)", line)
        self.assertEqual(programs.run("gpt-diagnose", "--checkpoint", run / "ckpt.pt", check_code=0).returncode, 0)

    def test_other_programs_know_the_merged_model(self):
        for form in FORMS:
            with self.subTest(form):
                run, base = self.tuned_of(form), read_safetensors(self.base_of(form) / "model.safetensors")
                merged = read_safetensors(self.export(run, f"{form}-merged") / "model.safetensors")
                folder = self.export(run, f"{form}-adapter", "--adapter")
                settings = json.loads((folder / "adapter_config.json").read_text())
                adapters = read_safetensors(folder / "adapter_model.safetensors")
                self.assertEqual(len(adapters), 2 * len(settings["target_modules"]))
                self.assertEqual(settings["base_model_name_or_path"], str(self.base_of(form)))
                changed = {name for name in merged if not torch.equal(merged[name], base[name])}
                self.assertEqual(changed, {f"{module}.weight" for module in settings["target_modules"]})
                for module in settings["target_modules"]:
                    a, b = (adapters[f"base_model.model.{module}.lora_{factor}.weight"] for factor in "AB")
                    rank = settings["rank_pattern"].get(module, settings["r"])
                    self.assertEqual((a.shape[0], b.shape[1]), (rank, rank))
                    added = settings["alpha_pattern"].get(module, settings["lora_alpha"]) / rank * (b @ a)
                    weight = f"{module}.weight"
                    expected = base[weight] + (added.T if settings["fan_in_fan_out"] else added)
                    # A sum of three products, each rounded to 2^-24 of the largest value.
                    torch.testing.assert_close(merged[weight], expected, rtol=0, atol=1e-6 * expected.abs().max().item())
                # A run evaluates with adapters what it has trained, and again from the merged folder.
                told = programs.run("gpt-train", *programs.flags({**self.again, "data.text": self.text, "output_dir": run}), "--eval-only",
                                    "--json", check_code=0)
                self.assertAlmostEqual(json.loads(told.stdout)["val_loss"], programs.losses(run)["val", 8], delta=1e-6)

    def test_adapters_leave_with_a_model_whose_scales_move(self):
        """GELU's gate leaves in Gemma's form, with factors in other weights than here, and its adapters are of that form, too."""
        run, base = self.root / "geglu", self.root / "geglu-tuned"
        programs.train(run, self.text, training__max_steps=2, model__mlp="geglu")
        self.tune(base, run)
        weights, merged = (read_safetensors(self.export(of, f"{of.name}-whole") / "model.safetensors") for of in (run, base))
        folder = self.export(base, "geglu-adapter", "--adapter")
        adapters, settings = read_safetensors(folder / "adapter_model.safetensors"), json.loads((folder / "adapter_config.json").read_text())
        self.assertEqual(len(settings["target_modules"]), 2 * 7)
        for module in settings["target_modules"]:
            a, b = (adapters[f"base_model.model.{module}.lora_{factor}.weight"] for factor in "AB")
            expected = weights[f"{module}.weight"] + settings["lora_alpha"] / settings["r"] * (b @ a)
            torch.testing.assert_close(merged[f"{module}.weight"], expected, rtol=0, atol=1e-6 * expected.abs().max().item())
        programs.run("gpt-export", "--checkpoint", base, "--adapter", "--format", "gguf", "--output", self.root / "geglu.gguf", check_code=0)

    def test_texts_come_from_the_merged_model(self):
        run = self.tuned_of("llama")
        words = ("--prompt", "12: the", "--max-new-tokens", "24", "--temperature", "0")
        own = programs.run("gpt-generate", "--checkpoint", run, *words, check_code=0).stdout
        begun = self.root / "again"
        self.begin_with(begun, run)
        self.assertEqual(programs.run("gpt-generate", "--checkpoint", begun, *words, check_code=0).stdout, own)

    def text_of(self, *words, code=0):
        done = programs.run("gpt-generate", "--device", "cpu", "--prompt", "12: the", "--max-new-tokens", "24", "--temperature", "0", "--checkpoint",
                            *words, check_code=code)
        return done.stderr if code else done.stdout

    def test_an_adapter_is_named_beside_its_model(self):
        base, run, whole = self.base_of("llama"), self.tuned_of("llama"), self.whole_of("llama")
        folder, of_whole = (self.export(of, f"{of.name}-named", "--adapter") for of in (run, whole))
        for dtype in ("float32", "int8"):
            words = ("--dtype", dtype)
            expected = self.text_of(run, *words)
            self.assertNotEqual(self.text_of(base, *words), expected)
            self.assertEqual(self.text_of(base, "--adapter", run, *words), expected)
            self.assertEqual(self.text_of(base, "--adapter", folder, *words), expected)
            self.assertEqual(self.text_of(base, "--lora", of_whole, *words), self.text_of(whole, *words))
        # It goes with a copy of its model, which may be a run's own checkpoint.
        own = self.root / "of-own"
        self.tune(own, self.root / "llama")
        copied = shutil.copytree(self.root / "llama", self.root / "llama-copied")
        self.assertEqual(self.text_of(copied, "--adapter", own), self.text_of(own))

        merged, named = (json.loads(programs.run("gpt-eval", "--data", self.text, "--json", *words, check_code=0).stdout)
                         for words in (("--checkpoint", run), ("--checkpoint", base, "--adapter", folder)))
        self.assertAlmostEqual(*(one["results"][0]["metrics"]["loss"]["value"] for one in (merged, named)), delta=1e-6)  # sums of float32 in another order

    def test_an_adapter_of_another_model_is_refused_in_a_line(self):
        base, run = self.base_of("llama"), self.tuned_of("llama")
        quantized = self.root / "named-quantized.pt"
        programs.run("gpt-export", "--checkpoint", self.root / "llama", "--format", "quantized", "--dtype", "int8", "--output", quantized, check_code=0)
        for code, words, part in (
                (4, (self.root / "llama", "--adapter", run), f"it goes with the model {base} (hash "),
                (4, (base, "--adapter", self.root / "none"), f"--adapter {self.root / 'none'}"),
                (4, (base, "--adapter", base), "it is a whole model, which --checkpoint names"),
                (2, (base, "--adapter", run, "--averages"), "--averages: an adapter goes with the weights themselves"),
                (2, (quantized, "--adapter", run), "does not say which model it was made of")):
            told = self.text_of(*words, code=code)
            self.assertIn(part, told)
            self.assertEqual(len([line for line in told.splitlines() if "error" in line]), 1, told)

    def test_a_run_begins_with_an_adapter_and_its_model(self):
        for form in FORMS:
            with self.subTest(form):
                run, begun = self.tuned_of(form), self.root / f"{form}-begun"
                self.begin_with(begun, self.export(run, f"{form}-given", "--adapter"))
                merged, found = (read_safetensors(self.export(one, f"{one.name}-whole-again") / "model.safetensors") for one in (run, begun))
                for name in merged:  # two sums of float32 that are rounded in different places
                    torch.testing.assert_close(found[name], merged[name], rtol=0, atol=1e-6 * merged[name].abs().max().item())

    def test_an_adapter_that_is_more_than_products_is_refused_by_name(self):
        folder = self.export(self.tuned_of("llama"), "edited", "--adapter")
        settings = json.loads((folder / "adapter_config.json").read_text())
        for change, message in (({"use_dora": True}, "use_dora is true; this program has only false"),
                                ({"modules_to_save": ["lm_head"]}, 'modules_to_save is ["lm_head"]; adapter_model.safetensors has no tensor of "lm_head"'),
                                ({"init_lora_weights": "pissa"}, "init_lora_weights is "),
                                ({"alora_invocation_tokens": [1, 2]}, "alora_invocation_tokens is "),
                                ({"base_model_name_or_path": "org/name"}, "base_model_name_or_path is org/name, and the model is needed as a folder")):
            (folder / "adapter_config.json").write_text(json.dumps({**settings, **change}))
            self.assertIn(message, self.begin_with(self.root / "none", folder, check_code=4).stderr)
        shutil.copytree(self.base_of("llama"), self.root / "name")  # beside the adapter
        self.begin_with(self.root / "beside", folder)

    def test_a_model_and_an_adapter_do_not_replace_each_other(self):
        run = self.tuned_of("llama")
        for name, first, second, held in (("an-adapter", ["--adapter"], [], "an adapter"), ("a-model", [], ["--adapter"], "a whole model")):
            folder = self.export(run, name, *first)
            before = {path.name: path.read_bytes() for path in folder.iterdir()}
            refused = programs.run("gpt-export", "--checkpoint", run, "--output", folder, *second, check_code=2)
            self.assertIn(f"the folder holds {held}, which ", refused.stderr)
            self.assertEqual({path.name: path.read_bytes() for path in folder.iterdir()}, before)

    def test_what_does_not_go_with_adapters_is_refused_in_a_line(self):
        run = self.root / "refused"
        for words, message in ((("--freeze", "h.0"), "the weights of the model stay as they are, unless lora_also_train names them"),
                               (("--lora_also_train", "h.0.mlp"), "lora_also_train: h.0.mlp names 'transformer.h.0.mlp.w1.weight', and its product has adapters"),
                               (("--optimizer", "muon"), "Muon makes each update of a matrix orthogonal"),
                               (("--lora_targets", "wte"), "lora_targets: wte names no product of this model; there are all-linear, q_proj")):
            self.assertIn(message, self.tune(run, self.base_of("llama"), *words, check_code=2).stderr)
        plain = programs.run("gpt-export", "--checkpoint", self.root / "llama", "--output", self.root / "no-adapter", "--adapter", check_code=4)
        self.assertIn("has no adapters, because its run trained the weights themselves", plain.stderr)
        self.assertFalse((self.root / "no-adapter").exists())

    def test_what_is_trained_whole_goes_where_the_adapters_go(self):
        for form, names in (("llama", ("model.embed_tokens", "model.norm")), ("gpt2", ("transformer.wte", "transformer.ln_f"))):
            with self.subTest(form):
                base, run = self.base_of(form), self.whole_of(form)
                saved = torch.load(run / "ckpt.pt", weights_only=True)
                whole = {name for name in saved["model"] if "lora" not in name}
                self.assertTrue({"transformer.wte.weight", "lm_head.weight", "transformer.ln_f.weight"} <= whole, whole)
                self.assertIn("after step 8", self.tune(run, base, training__max_steps=9, **self.WHOLE).stderr)
                merged = read_safetensors(self.export(run, f"{form}-whole-merged") / "model.safetensors")
                folder = self.export(run, f"{form}-whole-adapter", "--adapter")
                settings, tensors = json.loads((folder / "adapter_config.json").read_text()), read_safetensors(folder / "adapter_model.safetensors")
                self.assertEqual(set(settings["modules_to_save"]), {*names, "lm_head"})
                self.assertIs(settings["ensure_weight_tying"], True, "or peft gives the head rows of its own")
                for name in names:
                    self.assertTrue(torch.equal(tensors[f"base_model.model.{name}.weight"], merged[f"{name}.weight"]))
                    self.assertFalse(torch.equal(merged[f"{name}.weight"], read_safetensors(base / "model.safetensors")[f"{name}.weight"]))
                begun = self.root / f"{form}-whole-begun"
                self.begin_with(begun, folder)
                found = read_safetensors(self.export(begun, f"{form}-whole-found") / "model.safetensors")
                for name in merged:  # two sums of float32 that are rounded in different places
                    torch.testing.assert_close(found[name], merged[name], rtol=0, atol=1e-6 * merged[name].abs().max().item())
                for words, message in ((("gpt-export", "--adapter", "--format", "gguf", "--output", self.root / "whole.gguf"),
                                        "the run has trained more than adapters (wte, ln_f), and llama.cpp adds adapters to products alone"),):
                    self.assertIn(message, programs.run(*words, "--checkpoint", run, check_code=4).stderr)

    def test_a_table_that_was_trained_apart_from_its_head_is_refused(self):
        folder = self.export(self.whole_of("llama"), "parted", "--adapter")
        file, head = folder / "adapter_model.safetensors", "base_model.model.lm_head.weight"
        tensors = read_safetensors(file)
        for change in ({}, {head: tensors[head] + 1}):
            write_safetensors(file, {**{name: values for name, values in tensors.items() if name != head}, **change})
            settings = json.loads((folder / "adapter_config.json").read_text())
            (folder / "adapter_config.json").write_text(json.dumps({**settings, "modules_to_save": None}))
            line = self.begin_with(self.root / "none", folder, check_code=4).stderr
            self.assertIn("'model.embed_tokens.weight' was trained apart from the table that the model has tied it to", line)

    def test_a_second_export_is_the_same_to_the_byte(self):
        run = self.tuned_of("llama")
        first = self.export(run, "twice", "--adapter")
        before = {path.name: path.read_bytes() for path in first.iterdir()}
        self.assertEqual(set(before), {"README.md", "adapter_config.json", "adapter_model.safetensors"})
        self.export(run, "twice", "--adapter")
        self.assertEqual({path.name: path.read_bytes() for path in first.iterdir()}, before)


@unittest.skipUnless(peft, f"peft is not installed: {'' if peft else why_not}")
class Peft(Scratch):
    def test_logits_of_the_adapter_are_those_of_the_merged_model(self):
        ids = torch.arange(2, 18)[None]
        for form in FORMS:
            with self.subTest(form):
                adapter, merged = self.export(self.tuned_of(form), f"{form}-peft", "--adapter"), self.export(self.tuned_of(form), f"{form}-whole")
                load = transformers.AutoModelForCausalLM.from_pretrained
                with torch.no_grad():
                    theirs = peft.PeftModel.from_pretrained(load(self.base_of(form), dtype=torch.float32), adapter).eval()(ids).logits
                    ours = load(merged, dtype=torch.float32).eval()(ids).logits
                error = ((theirs - ours).abs().max() / ours.abs().max()).item()
                print(f"{form}: {error:.1e} of the largest logit")
                self.assertLess(error, 3e-6)

    def test_what_was_trained_whole_is_read_by_both(self):
        ids, load = torch.arange(2, 18)[None], transformers.AutoModelForCausalLM.from_pretrained
        for form in FORMS:
            with self.subTest(form):
                adapter, merged = self.export(self.whole_of(form), f"{form}-w-peft", "--adapter"), self.export(self.whole_of(form), f"{form}-w-merged")
                theirs = peft.PeftModel.from_pretrained(load(self.base_of(form), dtype=torch.float32), adapter).eval()
                with torch.no_grad():
                    expected = load(merged, dtype=torch.float32).eval()(ids).logits
                    error = ((theirs(ids).logits - expected).abs().max() / expected.abs().max()).item()
                print(f"{form}: {error:.1e} of the largest logit")
                self.assertLess(error, 3e-6)
                theirs.save_pretrained(self.root / f"{form}-w-theirs")
                begun = self.root / f"{form}-w-begun"
                self.begin_with(begun, self.root / f"{form}-w-theirs")
                with torch.no_grad():
                    ours = load(self.export(begun, f"{form}-w-out"), dtype=torch.float32).eval()(ids).logits
                self.assertLess(((ours - expected).abs().max() / expected.abs().max()).item(), 3e-6)

    def test_an_adapter_of_theirs_is_read_as_they_read_it(self):
        ids = torch.arange(2, 18)[None]
        for form, targets in (("llama", "all-linear"), ("gpt2", "all-linear"), ("gpt2", ["c_attn"])):
            with self.subTest(form, targets=targets):
                name, load = f"{form}-{len(targets)}", transformers.AutoModelForCausalLM.from_pretrained
                model = load(self.base_of(form), dtype=torch.float32)
                # The ranks of some modules differ, and B is no zeros.
                adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=6, target_modules=targets, use_rslora=form == "gpt2",
                                                                     rank_pattern={"q_proj": 3}, alpha_pattern={"q_proj": 5},
                                                                     init_lora_weights=False)).eval()
                adapted.save_pretrained(self.root / f"{name}-theirs")
                self.begin_with(self.root / f"{name}-read", self.root / f"{name}-theirs")
                with torch.no_grad():
                    theirs = adapted(ids).logits
                    ours = load(self.export(self.root / f"{name}-read", f"{name}-out"), dtype=torch.float32).eval()(ids).logits
                error = ((theirs - ours).abs().max() / theirs.abs().max()).item()
                print(f"{form}, {targets}: {error:.1e} of the largest logit")
                self.assertLess(error, 3e-6)


if __name__ == "__main__":
    unittest.main()
