"""A run on conversations: read in every shape, learned as the model's template writes them, and answered afterwards."""

import json
import pathlib
import tempfile
import unittest

import programs
from checkpoints import load, same
from test_chat import TEMPLATE, write_talker

ANSWER = "yes."
WORDS = "fox dog lazy quick brown".split()
DIALOGUES = [[{"role": "user", "content": f"{a} {b}"}, {"role": "assistant", "content": ANSWER}] for a in WORDS for b in WORDS] * 4
OPTIONS = {"training__max_steps": 60, "training__batch_size": 8, "training__gradient_accumulation_steps": 1, "training__log_interval": 10,
           "training__eval_interval": 20, "model__dropout": 0, "model__block_size": 64}


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


class Conversations(unittest.TestCase):
    """cls.base is a model of Hugging Face's form that has a chat template, and has not learned to answer."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.base = write_talker(cls.folder, model__block_size=64, training__max_steps=10)
        cls.chats = write_lines(cls.folder / "chats.jsonl", [{"messages": dialogue} for dialogue in DIALOGUES])
        cls.tuned = cls.folder / "tuned"
        cls.log = cls.tune(cls.tuned, cls.chats, training__sample_interval=60, training__sample_tokens=20)

    @classmethod
    def words(cls, folder, data, **options):
        options = {**OPTIONS, **options}
        sizes = {key: value for key, value in programs.TINY.items() if not key.startswith("model.")}
        return programs.flags({**sizes, "training.init_from": cls.base, "data.text": data, "output_dir": folder, "training.warmup_steps": 0,
                               **{key.replace("__", "."): value for key, value in options.items()}})

    @classmethod
    def tune(cls, folder, data, check_code=0, **options):
        return programs.run("gpt-train", *cls.words(folder, data, **options), check_code=check_code).stderr

    def answer(self, model, *words):
        """Without what follows the line break, which in this template ends a turn."""
        return programs.run("gpt-generate", "--checkpoint", model, "--device", "cpu", "--threads", 1, "--chat", "--temperature", 0, "-n", 12,
                            "--stop", "\n", *words, check_code=0).stdout

    def test_it_answers_as_it_was_taught(self):
        self.assertNotEqual(self.answer(self.base, "lazy fox"), ANSWER + "\n")
        self.assertEqual(self.answer(self.tuned, "lazy fox"), ANSWER + "\n")
        exported = self.folder / "exported"
        programs.run("gpt-export", "--checkpoint", self.tuned, "--output", exported, check_code=0)
        self.assertEqual((exported / "chat_template.jinja").read_text(), TEMPLATE)
        self.assertEqual(self.answer(exported, "lazy fox"), ANSWER + "\n")

    def test_the_log_says_what_is_learned_and_samples_answer(self):
        self.assertIn("100 conversations ('messages') with 200 turns: 100 answers are learned", self.log)
        self.assertRegex(self.log, r"with what is not learned in brackets: \[q \w+ \w+\\na \]yes\.")
        sample = next((self.tuned / "samples").glob("*60*")).read_text()
        self.assertRegex(sample, rf"q \w+ \w+\na {ANSWER}")

    def test_only_answers_are_predicted(self):
        """Each is the same, so that the loss of answers falls to nothing, and that of all that is said does not."""
        last = lambda folder: [record["val_loss"] for record in programs.metrics(folder) if "val_loss" in record][-1]
        self.assertLess(last(self.tuned), 0.1)
        self.tune(self.folder / "all", self.chats, data__learn="all")
        self.assertGreater(last(self.folder / "all"), 0.3)

    def test_every_shape_of_a_line_is_the_same_data(self):
        pairs = [(question["content"], answer["content"]) for question, answer in DIALOGUES]
        shapes = {
            "prompt": [{"prompt": question, "completion": answer} for question, answer in pairs],
            "alpaca": [{"instruction": question, "input": "", "output": answer} for question, answer in pairs],
            "sharegpt": [{"conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]} for question, answer in pairs]}
        for name, lines in shapes.items():
            with self.subTest(name):
                self.tune(self.folder / name, write_lines(self.folder / f"{name}.jsonl", lines))
                self.assertEqual(programs.losses(self.folder / name), programs.losses(self.tuned))

    def test_a_run_that_ends_goes_on_to_the_bit(self):
        for name, ends in (("straight", (40,)), ("in two", (13, 40))):
            for end in ends:
                self.tune(self.folder / name, self.chats, training__lr_schedule="constant", training__max_steps=end)
        self.assertTrue(same(*(load(self.folder / name / "ckpt.pt")["model"] for name in ("straight", "in two"))))

    def test_a_teacher_that_is_the_model_itself_has_nothing_to_teach(self):
        """It reads the same rows, in which conversations do not see each other: the distributions are equal."""
        run = self.folder / "taught"
        self.tune(run, self.chats, training__init_from=self.tuned, training__distill_from=self.tuned, training__distill_weight=1,
                  training__max_steps=1, training__log_interval=1)
        self.assertLess(programs.metrics(run)[0]["grad_norm"], 1e-4)

    def test_sequences_may_be_shorter_than_what_the_model_sees(self):
        run = self.folder / "short"
        log = self.tune(run, self.chats, training__sequence_length=32)
        self.assertRegex(log, r"Conversations: \d+ in \d+ sequences of 32 tokens")
        self.assertEqual(load(run / "ckpt.pt")["config"]["model"]["block_size"], 64)
        self.assertEqual(self.answer(run, "lazy fox"), ANSWER + "\n")

    def test_a_line_of_another_kind_is_named(self):
        lines = [{"messages": dialogue} for dialogue in DIALOGUES[:5]] + [{"text": "no dialogue"}]
        error = self.tune(self.folder / "mixed", write_lines(self.folder / "mixed.jsonl", lines), check_code=3)
        self.assertRegex(error, r"mixed\.jsonl: line 6")


if __name__ == "__main__":
    unittest.main()
