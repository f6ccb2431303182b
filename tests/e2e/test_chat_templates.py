"""Models of text that learn to talk: new tokens for the turns of a template, in the run, in both exports and in whatever talks."""

import pathlib
import tempfile
import unittest

import programs
import serving
from test_conversations import ANSWER, DIALOGUES, OPTIONS, write_lines

try:
    import transformers
    transformers.logging.set_verbosity_error()
except ImportError:
    transformers = None

WORDS = "abcdefghijklmnopqrstuvwxyz .,:#\nABIRUW"  # what the templates are made of, too


def write_model(folder, name, **options):
    """A run on words, which has no chat template."""
    text = programs.write_text(folder)
    text.write_text(text.read_text() + (WORDS + "\n") * 5)
    run = folder / name
    programs.train(run, text, model__block_size=64, training__max_steps=10, **options)
    return run


class ChatTemplates(unittest.TestCase):
    """cls.bases are models of each kind of tokenizer that gpt-train makes by itself."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.chats = write_lines(cls.folder / "chats.jsonl", [{"messages": dialogue} for dialogue in DIALOGUES])
        cls.bases = {kind: write_model(cls.folder, kind.replace(":", ""), data__tokenizer=kind) for kind in ("char", "bpe:300", "byte")}
        cls.tuned = {kind: cls.folder / f"{base.name}_tuned" for kind, base in cls.bases.items()}
        cls.logs = {kind: cls.tune(base, cls.tuned[kind], cls.chats) for kind, base in cls.bases.items()}

    @classmethod
    def tune(cls, base, folder, data, check_code=0, **options):
        options = {**OPTIONS, **options}
        sizes = {key: value for key, value in programs.TINY.items() if not key.startswith("model.")}
        given = {**sizes, "training.init_from": base, "output_dir": folder, "training.warmup_steps": 0,
                 "data.bin" if str(data).endswith(".bin") else "data.text": data,
                 **{key.replace("__", "."): value for key, value in options.items()}}
        return programs.run("gpt-train", *programs.flags(given), check_code=check_code).stderr

    def answer(self, model, *words):
        return programs.run("gpt-generate", "--checkpoint", model, "--device", "cpu", "--threads", 1, "--chat", "--temperature", 0, "-n", 12,
                            *words, check_code=0).stdout

    def export(self, kind, *words):
        exported = self.folder / f"{self.tuned[kind].name}_exported"
        programs.run("gpt-export", "--checkpoint", self.tuned[kind], "--output", exported, *words, check_code=0)
        return exported

    def test_the_log_says_what_is_new(self):
        for kind, log in self.logs.items():
            self.assertIn("Conversations are laid out in ChatML, since the model has no chat template; new tokens of the tokenizer: "
                          "<|im_start|>, <|im_end|>", log, kind)
            self.assertIn("The rows of 2 new tokens begin with the mean of all others", log, kind)

    def test_it_ends_its_turn_by_itself(self):
        for kind, model in self.tuned.items():
            self.assertEqual(self.answer(model, "lazy fox"), ANSWER + "\n", kind)
            self.assertEqual(self.answer(self.export(kind), "lazy fox"), ANSWER + "\n", kind)

    def test_it_is_served(self):
        server = serving.Server("--checkpoint", self.tuned["char"], "--device", "cpu", "--threads", 1, "--slots", 1)
        self.addCleanup(server.close)
        status, answer = server.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "lazy fox"}], "temperature": 0})
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["choices"][0]["message"]["content"], ANSWER)
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")

    def test_llama_cpp_finds_the_template_and_the_tokens(self):
        for kind in self.tuned:
            gguf = self.folder / f"{self.tuned[kind].name}.gguf"
            programs.run("gpt-export", "--checkpoint", self.tuned[kind], "--format", "gguf", "--output", gguf, check_code=0)
            written = gguf.read_bytes()
            for part in (b"<|im_start|>", b"<|im_end|>", b"tokenizer.chat_template"):
                self.assertIn(part, written, kind)

    def test_a_run_goes_on_with_its_tokens(self):
        base, folder = self.bases["char"], self.folder / "in two"
        for end in (13, 60):
            self.tune(base, folder, self.chats, training__max_steps=end, training__lr_schedule="constant")
        self.assertEqual(self.answer(folder, "lazy fox"), ANSWER + "\n")
        # The effective configuration of the run names its vocabulary.
        programs.run("gpt-train", "--config", folder / "effective_config.yaml", "--max_steps", 61, check_code=0)
        # A tuned model is tuned again without anything new.
        log = self.tune(folder, self.folder / "again", self.chats, training__max_steps=10)
        self.assertNotIn("new token", log)

    def test_another_way_to_learn_is_named(self):
        error = self.tune(self.bases["char"], self.tuned["char"], self.chats, check_code=4, training__max_steps=70, data__learn="all")
        self.assertIn("its configuration differs (data.learn: answers -> all)", error)

    def test_named_templates(self):
        for name in ("plain", "zephyr", "llama2"):
            folder = self.folder / name
            self.tune(self.bases["byte"], folder, self.chats, data__chat_template=name)
            self.assertEqual(self.answer(folder, "lazy fox").strip(), ANSWER, name)
        # A name stands for a template in a chat, too.
        self.assertEqual(self.answer(self.folder / "plain", "lazy fox", "--chat-template", "plain"), ANSWER + "\n")

    def test_prepared_conversations_are_the_same_data(self):
        base = self.bases["bpe:300"]
        prepared = self.folder / "prepared"
        log = programs.run("gpt-prepare", "--input", self.chats, "--tokenizer", base, "--output", prepared, "--deduplicate", "none",
                           check_code=0).stderr
        self.assertIn("100 conversations ('messages') with 200 turns: 100 answers are learned", log)
        self.assertIn("with what is not learned in brackets: [<|im_start|>user", log)
        self.assertIn(f"Next: gpt-train --init_from {base} --data.bin {prepared}/tokens_bpe.bin", log)
        folder = self.folder / "of bin"
        self.tune(base, folder, prepared / "tokens_bpe.bin")
        self.assertEqual(programs.losses(folder), programs.losses(self.tuned["bpe:300"]))
        error = self.tune(self.bases["char"], self.folder / "other", prepared / "tokens_bpe.bin", check_code=3)
        self.assertIn("made with another tokenizer than the checkpoint's", error)
        # An export makes the same ids.
        again = self.folder / "prepared again"
        programs.run("gpt-prepare", "--input", self.chats, "--tokenizer", self.export("bpe:300"), "--output", again, "--deduplicate", "none",
                     check_code=0)
        self.assertEqual((again / "tokens_bpe.bin").read_bytes(), (prepared / "tokens_bpe.bin").read_bytes())
        self.assertEqual((again / "tokens_bpe_marks.bin").read_bytes(), (prepared / "tokens_bpe_marks.bin").read_bytes())

    @unittest.skipUnless(transformers, "transformers is not installed")
    def test_transformers_has_the_same_ids(self):
        words = "fox <|im_end|> dog"
        dialogue = [{"role": "user", "content": words}, {"role": "assistant", "content": "yes."}]
        for kind in self.tuned:
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.export(kind))
            for trust in (False, True):
                said = dialogue if trust else [{**turn, "content": turn["content"].replace("<|im_end|>", "lazy")} for turn in dialogue]
                data = write_lines(self.folder / f"one_{trust}.jsonl", [{"messages": said}])
                out = self.folder / f"ids {kind} {trust}"
                programs.run("gpt-prepare", "--input", data, "--tokenizer", self.tuned[kind], "--output", out, "--learn", "all",
                             *(["--trust-markup"] if trust else []), "--validation-fraction", 0, check_code=0)
                ids = [int.from_bytes(pair, "little") for pair in zip(*[iter((out / "tokens_bpe.bin").read_bytes())] * 2)]
                expected = tokenizer.apply_chat_template(said, tokenize=True)
                expected = expected["input_ids"] if not isinstance(expected, list) else expected
                self.assertEqual(ids, list(expected), f"{kind} {trust}")


if __name__ == "__main__":
    unittest.main()
