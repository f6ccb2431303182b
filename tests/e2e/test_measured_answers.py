"""What gpt-eval measures of conversations, and how gpt-prune reads them: the tokens of training, and no others."""

import array
import itertools
import json
import pathlib
import tempfile
import unittest

import programs
import serving
from test_chat import write_talker

CONTEXT = 64
WORDS = "fox dog lazy quick brown".split()


def turns(*contents):
    return [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]


DIALOGUES = [turns(f"{a} {b}", f"the {b}.") for a, b in itertools.product(WORDS, WORDS)] + [
    turns("the fox", "jumps.", "the dog", "sleeps."),
    [{"role": "system", "content": "fox"}, *turns("the", "quick brown fox")],
    turns("fox", "one.", "the quick brown fox jumps over the lazy dog", "two."),  # is cut behind its first answer
    turns("nobody answers"),
    turns("the quick brown fox jumps over the lazy dog " * 2, "too late.")]  # nothing of it counts


def write_lines(path, dialogues):
    path.write_text("".join(json.dumps({"messages": dialogue}) + "\n" for dialogue in dialogues))
    return path


def laid_out(dialogue):
    """The bytes that test_chat's template makes of it, which are the ids, and which of them the assistant says."""
    ids, said = [], []
    for message in dialogue:
        name, words = {"user": "q ", "assistant": "a ", "system": "s "}[message["role"]].encode(), (message["content"] + "\n").encode()
        ids += [*name, *words]
        said += [False] * len(name) + [message["role"] == "assistant"] * len(words)
    return ids, said


class MeasuredAnswers(unittest.TestCase):
    """cls.model is a folder of Hugging Face's form whose tokens are bytes."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.model = write_talker(cls.folder, model__block_size=CONTEXT, training__max_steps=30)
        cls.chats = write_lines(cls.folder / "chats.jsonl", DIALOGUES)

    def evaluate(self, *words, model=None, code=0):
        return programs.run("gpt-eval", "--checkpoint", model or self.model, "--device", "cpu", "--threads", 1, *words, check_code=code)

    def result(self, *words, **options):
        return json.loads(self.evaluate(*words, "--json", **options).stdout)["results"][0]

    def test_the_loss_is_that_of_what_the_assistant_says(self):
        """By the server, which is told the ids, and says how likely each is."""
        server = serving.Server("--checkpoint", self.model, "--device", "cpu", "--threads", 1, "--slots", 1)
        self.addCleanup(server.close)
        losses, sizes = [], []
        for dialogue in DIALOGUES:
            ids, said = laid_out(dialogue)
            if len(ids) > CONTEXT + 1:
                end = max((i + 1 for i in range(CONTEXT + 1) if said[i] and not said[i + 1]), default=0)
                ids, said = ids[:end], said[:end]
            if not any(said):
                continue
            self.assertLessEqual(len(ids), CONTEXT)  # as the server takes
            scores = server.complete(prompt=ids, echo=True, logprobs=0, max_tokens=0)["choices"][0]["logprobs"]["token_logprobs"]
            losses.append(-sum(score for score, counts in zip(scores, said) if counts))
            sizes.append(sum(said))
        found = self.result("--data", self.chats)
        self.assertEqual((found["conversations"], found["conversations_cut"], found["tokens"], found["bytes"], found["window"]),
                         (len(DIALOGUES) - 2, 1, sum(sizes), sum(sizes), CONTEXT))
        loss = sum(losses) / sum(sizes)
        squares = sum((l - loss * n) ** 2 for l, n in zip(losses, sizes))
        metrics, count = found["metrics"], len(sizes)
        self.assertAlmostEqual(metrics["loss"]["value"], loss, delta=1e-5)
        self.assertAlmostEqual(metrics["loss"]["stderr"], (squares * count / (count - 1)) ** .5 / sum(sizes), delta=1e-5)
        self.assertEqual(sorted(metrics), ["bits_per_byte", "byte_perplexity", "loss", "perplexity"])

    def test_what_is_shown_and_what_counts(self):
        done = self.evaluate("--data", self.chats)
        self.assertRegex(done.stdout, rf"(?m)^text \(.*chats.jsonl\): 28 conversations, .* bytes, .* tokens predicted; windows of {CONTEXT} tokens$")
        self.assertIn("note: 1 conversation was longer than the window of 64 tokens: what follows the last answer that fits was left out", done.stdout)
        self.assertIn("1 conversation is left out: nothing that counts is within the window of 64 tokens", done.stderr)
        self.assertIn("with what is not learned in brackets: [q fox fox\\na ]the fox.", done.stderr)
        one, all_words = self.result("--data", self.chats, "--limit", 1), self.result("--data", self.chats, "--limit", 1, "--learn", "all")
        self.assertEqual((one["conversations"], one["tokens"]), (1, len("the fox.\n")))
        self.assertEqual(all_words["tokens"], len("q fox fox\na the fox.\n") - 1)
        last = write_lines(self.folder / "last.jsonl", [DIALOGUES[25]])
        self.assertEqual(self.result("--data", last, "--learn", "last")["tokens"], len("sleeps.\n"))
        twice = self.result("--data", self.chats, last)
        self.assertEqual((twice["conversations"], twice["tokens"]), (29, self.result("--data", self.chats)["tokens"] + len("jumps.\nsleeps.\n")))

    def test_results_are_kept(self):
        output = self.folder / "results.jsonl"
        words = ("--data", self.chats, "--output", output)
        first = self.result(*words, "--limit", 5)
        self.assertEqual(output.read_text().count('"task"'), 5)
        self.assertEqual(self.result(*words, "--limit", 5), first)
        self.assertEqual(self.result(*words)["metrics"], self.result("--data", self.chats)["metrics"])
        self.assertIn("is not of this input", self.evaluate(*words, "--learn", "all", code=2).stderr)

    def test_what_does_not_go_together_is_refused(self):
        text, bare = self.folder / "some.txt", self.folder / "run"
        text.write_text("the quick brown fox\n")
        for code, message, words in (
                (2, "--stride is for texts", ("--data", self.chats, "--stride", 3)),
                (2, "--learn is for conversations", ("--data", text, "--learn", "all")),
                (3, "holds conversations, and .*some.txt does not", ("--data", text, self.chats))):
            self.assertRegex(self.evaluate(*words, code=code).stderr.splitlines()[-1], "^error: .*" + message)
        error = self.evaluate("--data", self.chats, model=bare, code=2).stderr.splitlines()[-1]
        self.assertRegex(error, "^error: .*chats.jsonl holds conversations, but the model has no chat template")

    def tune(self, name, **options):
        """A run that begins with the model; its folder."""
        sizes = {key: value for key, value in programs.TINY.items() if not key.startswith("model.")}
        programs.run("gpt-train", *programs.flags({
            **sizes, "training.init_from": self.model, "model.block_size": CONTEXT, "data.text": self.chats, "output_dir": self.folder / name,
            "training.warmup_steps": 0, "training.gradient_accumulation_steps": 1, **options}), check_code=0)
        return self.folder / name

    def test_the_loss_is_the_validation_loss_of_training(self):
        cache = self.folder / "cache"
        tuned = self.tune("tuned", **{"data.cache_dir": cache, "data.validation_fraction": 0.3, "training.max_steps": 4, "training.eval_interval": 4})
        trained = [record for record in programs.metrics(tuned) if "val_loss" in record][-1]
        metadata, = cache.rglob("*metadata.json")
        ids = array.array("H", pathlib.Path(str(metadata).replace("_metadata.json", ".bin")).read_bytes()).tolist()
        held_out = bytes(ids[json.loads(metadata.read_text())["train"]["tokens"]:]).decode()
        chosen = [dialogue for dialogue in DIALOGUES if bytes(laid_out(dialogue)[0]).decode() in held_out]
        self.assertGreater(len(chosen), 2)
        found = self.result("--data", write_lines(self.folder / "held_out.jsonl", chosen), model=tuned)
        self.assertAlmostEqual(found["metrics"]["loss"]["value"], trained["val_loss"], delta=1e-5)

    def test_pruning_reads_them_as_training_does(self):
        whole, smaller = self.tune("whole", **{"training.max_steps": 1, "data.validation_fraction": 0, "training.eval_interval": 0}), self.folder / "smaller"
        report = json.loads(programs.run("gpt-prune", "--checkpoint", whole, "--data", self.chats, "--device", "cpu", "--threads", 1, "--mlp", "25%",
                                         "--output", smaller, "--json", check_code=0).stdout)
        for model, part in ((whole, "before"), (smaller, "after")):
            self.assertAlmostEqual(report[part]["loss"], self.result("--data", self.chats, model=model)["metrics"]["loss"]["value"], delta=1e-5)

    def test_gpt_bench_measures_the_run_that_learns_them(self):
        words = {"training.init_from": self.model, "data.text": self.chats, "device": "cpu", "threads": 1, "training.batch_size": 2}
        done = programs.run("gpt-bench", "measure", "--warm-up", 0, "--updates", 1, *programs.flags(words), check_code=0)
        self.assertIn("conversations ('messages')", done.stderr)
        self.assertGreater(json.loads(done.stdout)["loss"], 0)


if __name__ == "__main__":
    unittest.main()
