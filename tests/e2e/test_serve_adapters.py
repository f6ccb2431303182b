"""gpt-serve with adapters (LoRA) of its model, which requests choose as models of their own."""

import concurrent.futures
import json
import re
import shutil
import unittest

import programs
import serving
import test_lora


def one_line(text, *parts):
    """Whether a line of it has them all."""
    return any(all(part in line for part in parts) for line in text.splitlines())


class ServeAdapters(test_lora.Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.base, cls.tuned = cls.base_of("llama"), cls.tuned_of("llama")
        cls.peft = cls.root / "llama-peft"
        programs.run("gpt-export", "--checkpoint", cls.tuned, "--adapter", "--output", cls.peft, check_code=0)
        cls.other = cls.root / "other-rank"
        cls.tune(cls.other, cls.base, training__lora_rank=5, training__lora_targets="[q_proj, down_proj]", training__max_steps=12,
                 training__learning_rate=0.05)
        cls.models = {"llama-base": cls.base, "ours": cls.tuned, "llama-peft": cls.peft, "other": cls.other}
        cls.server = cls.serve_with(cls.base)
        cls.addClassCleanup(cls.server.close)

    @classmethod
    def serve_with(cls, base, *words):
        return serving.Server("--checkpoint", base, "--device", "cpu", "--threads", 1, "--slots", 8, "--adapter", f"ours={cls.tuned}", cls.peft,
                              "--lora-modules", f"other={cls.other}", *words)

    def generated(self, model, prompt):
        """Alone, with its adapter merged."""
        done = programs.run("gpt-generate", "--checkpoint", self.models[model], "--device", "cpu", "--threads", 1, "--prompt", prompt, "--json",
                            "--max-new-tokens", 40, "--temperature", 0, check_code=0)
        return json.loads(done.stdout)["text"]

    def complete(self, model, prompt):
        answer = self.server.complete(model=model, prompt=prompt, max_tokens=40, temperature=0)
        self.assertEqual(answer["model"], model)
        return answer["choices"][0]["text"]

    def test_texts_at_once_are_those_of_each_model_alone(self):
        prompts = ("12: the quick", "the lazy dog")
        expected = {(model, prompt): self.generated(model, prompt) for model in self.models for prompt in prompts}
        by_model = {model: [expected[model, prompt] for prompt in prompts] for model in self.models}
        self.assertEqual(by_model["ours"], by_model["llama-peft"])
        self.assertEqual(len(set(map(tuple, by_model.values()))), 3, "adapters write otherwise")
        asked = list(expected) * 2
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            for pair, text in zip(asked, pool.map(lambda pair: self.complete(*pair), asked)):
                self.assertEqual(text, expected[pair], pair)
        for model in ("other", "ours", "llama-base", "other"):  # the same prompt one after the other
            self.assertEqual(self.complete(model, prompts[1]), expected[model, prompts[1]])

    def test_scores_of_a_prompt_are_those_of_the_adapter(self):
        fields = dict(prompt="12: the quick", max_tokens=0, echo=True, logprobs=0)
        scores = {model: self.server.complete(model=model, **fields)["choices"][0]["logprobs"]["token_logprobs"][1:] for model in self.models}
        merged = serving.Server("--checkpoint", self.tuned, "--device", "cpu", "--threads", 1)
        self.addCleanup(merged.close)
        for own, expected in zip(scores["ours"], merged.complete(**fields)["choices"][0]["logprobs"]["token_logprobs"][1:]):
            self.assertAlmostEqual(own, expected, delta=1e-4)
        self.assertNotEqual(scores["ours"], scores["llama-base"])
        self.assertNotEqual(scores["ours"], scores["other"])

    def test_models_are_listed_with_what_they_go_with(self):
        listed = self.server.ask("GET", "/v1/models")[1]["data"]
        self.assertEqual([(model["id"], model["parent"]) for model in listed],
                         [("llama-base", None), ("ours", "llama-base"), ("llama-peft", "llama-base"), ("other", "llama-base")])
        self.assertEqual([model["root"] for model in listed], [str(self.base), str(self.tuned / "ckpt.pt"), str(self.peft), str(self.other / "ckpt.pt")])
        self.assertEqual(self.server.ask("GET", "/v1/models/ours")[1], listed[1])
        self.assertEqual(self.server.complete(prompt="12", max_tokens=1)["model"], "llama-base")
        error = self.server.refused(404, prompt="12", model="another")
        self.assertEqual(error["code"], "model_not_found")
        self.assertIn('only "llama-base", "ours", "llama-peft", "other"', error["message"])
        self.assertEqual(self.server.ask("GET", "/health")[1]["models"], list(self.models))
        self.assertTrue(any(re.match(r'Adapter "other" from .*: 4 products, rank 5', line) for line in self.server.log), self.server.log)

    def test_an_adapter_goes_with_a_base_in_few_bits(self):
        server = self.serve_with(self.base, "--dtype", "int8")
        self.addCleanup(server.close)
        alone = serving.Server("--checkpoint", self.base, "--device", "cpu", "--threads", 1, "--dtype", "int8")
        self.addCleanup(alone.close)
        fields = dict(prompt="12: the quick", max_tokens=24, temperature=0)
        texts = {model: server.complete(model=model, **fields)["choices"][0]["text"] for model in self.models}
        self.assertEqual(texts["llama-base"], alone.complete(**fields)["choices"][0]["text"])
        self.assertEqual(texts["ours"], texts["llama-peft"])
        self.assertEqual(len(set(texts.values())), 3)

    def test_an_adapter_may_chat_where_its_model_does_not(self):
        chats = shutil.copytree(self.peft, self.root / "chats")
        settings = json.loads((chats / "adapter_config.json").read_text())
        # A name that nobody can look up here is taken on trust.
        (chats / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": "somebody/a-model"}))
        (chats / "chat_template.jinja").write_text("{% for message in messages %}{{ message['content'] }}: {% endfor %}")
        # The others know their model by its hash, wherever it lies.
        copied = shutil.copytree(self.base, self.root / "copied")
        server = serving.Server("--checkpoint", copied, "--device", "cpu", "--threads", 1, "--adapter", chats, f"ours={self.tuned}", self.peft)
        self.addCleanup(server.close)
        for model in ("ours", "llama-peft"):
            answer = server.complete(model=model, prompt="12: the quick", max_tokens=40, temperature=0)
            self.assertEqual(answer["choices"][0]["text"], self.complete(model, "12: the quick"))
        self.assertTrue(any("names somebody/a-model as its model, which is not here" in line for line in server.log), server.log)
        asked = {"messages": [{"role": "user", "content": "12"}], "temperature": 0, "max_tokens": 8}
        status, answer = server.ask("POST", "/v1/chat/completions", {**asked, "model": "chats"})
        self.assertEqual((status, answer["model"]), (200, "chats"), answer)
        self.assertEqual(answer["choices"][0]["message"]["content"],
                         server.complete(model="chats", prompt="12: ", max_tokens=8, temperature=0)["choices"][0]["text"])
        status, answer = server.ask("POST", "/v1/chat/completions", asked)
        self.assertEqual((status, answer["error"]["code"]), (400, "no_chat_template"))
        self.assertIn('id="dialogue"', server.ask("GET", "/")[1])

    def refused(self, base, *words, code=4):
        return programs.run("gpt-serve", "--port", 0, "--checkpoint", base, "--device", "cpu", *words, check_code=code).stderr

    def test_what_does_not_fit_is_refused_in_a_line(self):
        others_base = self.root / "llama" / "ckpt.pt"  # the run that the base was exported from
        for base, words, code, parts in (
                (others_base, ("--adapter", self.tuned), 4, (str(self.base), str(others_base), "and not with")),
                (others_base, ("--adapter", self.peft), 4, (str(self.base), str(others_base), "and not with")),
                (self.base, ("--adapter", self.root / "llama"), 4, ("it holds a whole model",)),
                (self.base, ("--adapter", f"whole={self.base}"), 4, ("it is a whole model",)),
                (self.base, ("--adapter", f"a={self.tuned}", "--adapter", f"a={self.peft}"), 2, ('there is an adapter "a" already',)),
                (self.base, ("--adapter", f"llama-base={self.tuned}"), 2, ('the model itself is called "llama-base"',)),
                (self.base, ("--adapter", self.root / "none"), 4, (f"--adapter {self.root / 'none'}: there is no such file or folder",)),
                (self.tuned, ("--adapter", f"again={self.peft}"), 4, (str(self.tuned / "ckpt.pt"), str(self.base)))):
            text = self.refused(base, *words, code=code)
            self.assertTrue(one_line(text, *parts), text)
        quantized = self.root / "quantized.pt"
        programs.run("gpt-export", "--checkpoint", self.root / "llama", "--format", "quantized", "--dtype", "int8", "--output", quantized, check_code=0)
        self.assertIn("does not say which model it was made of", self.refused(quantized, "--adapter", self.tuned, code=2))

    def test_what_an_adapter_trains_as_a_whole_is_refused_by_name(self):
        whole = self.root / "whole"
        self.tune(whole, self.base, training__lora_also_train="norms")
        message = "transformer.h.0.ln_1.weight', and products of blocks alone have adapters while they are served"
        self.assertIn(message, self.refused(self.base, "--adapter", self.export(whole, "whole-peft", "--adapter")))
        self.assertIn("its run has changed 'transformer.h.0.ln_1.weight' itself", self.refused(self.base, "--adapter", whole))
        changed = self.root / "changed-vocabulary"
        self.tune(changed, self.base, data__tokenizer="byte")
        self.assertTrue(one_line(self.refused(self.base, "--adapter", changed), "its run has changed 'transformer.wte.weight' itself"))


if __name__ == "__main__":
    unittest.main()
