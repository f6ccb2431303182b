"""training.lora_rank: adapters of a model that stays as it is, merged with it or alone. What peft and transformers make of them is skipped
where they are not installed."""

import json
import pathlib
import shutil
import struct
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
    def tune(cls, run, base, *words, check_code=0, **options):
        merged = {**cls.again, "data.text": cls.text, "output_dir": run, "training.init_from": base, "training.max_steps": 8,
                  "training.lora_rank": RANK, "training.learning_rate": 0.02}
        merged.update({key.replace("__", "."): value for key, value in options.items()})
        return programs.run("gpt-train", *programs.flags(merged), *words, check_code=check_code)

    def begin_with(self, run, folder, check_code=0):
        """A run of one step that leaves the weights as they are."""
        return self.tune(run, folder, training__lora_rank=0, training__max_steps=1, training__learning_rate=0, training__min_lr=0,
                         check_code=check_code)

    def export(self, run, name, *words):
        programs.run("gpt-export", "--checkpoint", run, "--output", self.root / name, *words, check_code=0)
        return self.root / name


class Lora(Scratch):
    def test_adapters_alone_are_trained_and_the_run_goes_on(self):
        base, run = self.base_of("llama"), self.root / "alone"
        done = self.tune(run, base, training__checkpoint_interval="2 steps")
        self.assertRegex(done.stderr, r"LoRA: adapters of rank 2 \(all-linear\), times 2: [0-9.]+k parameters are trained, [0-9.]+ % of [0-9.]+k")
        begun, saved = (torch.load(path / "ckpt.pt", weights_only=True) for path in (self.root / "llama", run))
        for name, tensor in begun["model"].items():
            self.assertTrue(torch.equal(saved["model"][name], tensor), name)
        adapters = set(saved["model"]) - set(begun["model"])
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

    def test_texts_come_from_the_merged_model(self):
        run = self.tuned_of("llama")
        words = ("--prompt", "12: the", "--max-new-tokens", "24", "--temperature", "0")
        own = programs.run("gpt-generate", "--checkpoint", run, *words, check_code=0).stdout
        begun = self.root / "again"
        self.begin_with(begun, run)
        self.assertEqual(programs.run("gpt-generate", "--checkpoint", begun, *words, check_code=0).stdout, own)

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
                                ({"modules_to_save": ["lm_head"]}, "modules_to_save is [\"lm_head\"]; this program reads adapters of products alone"),
                                ({"init_lora_weights": "pissa"}, "init_lora_weights is "),
                                ({"base_model_name_or_path": "org/name"}, "base_model_name_or_path is org/name, and the model is needed as a folder")):
            (folder / "adapter_config.json").write_text(json.dumps({**settings, **change}))
            self.assertIn(message, self.begin_with(self.root / "none", folder, check_code=4).stderr)
        shutil.copytree(self.base_of("llama"), self.root / "name")  # beside the adapter
        self.begin_with(self.root / "beside", folder)

    def test_what_does_not_go_with_adapters_is_refused_in_a_line(self):
        run = self.root / "refused"
        for words, message in ((("--freeze", "h.0"), "all weights of the model stay as they are"),
                               (("--optimizer", "muon"), "Muon makes each update of a matrix orthogonal"),
                               (("--lora_targets", "wte"), "lora_targets: wte names no product of this model; there are all-linear, q_proj")):
            self.assertIn(message, self.tune(run, self.base_of("llama"), *words, check_code=2).stderr)
        plain = programs.run("gpt-export", "--checkpoint", self.root / "llama", "--output", self.root / "no-adapter", "--adapter", check_code=4)
        self.assertIn("has no adapters, because its run trained the weights themselves", plain.stderr)
        self.assertFalse((self.root / "no-adapter").exists())

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
