"""Where gpt-generate's texts go: as JSON, into a file, and safely onto a terminal."""

import json
import re
import signal
import subprocess
import tty
import unittest

import generating
import programs

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Output(generating.TrainedModel):
    def setUp(self):
        self.file = self.root / f"{self._testMethodName}.txt"

    def files(self):
        """This test's files: what it was to write, and whatever else has the test's name in its own."""
        return [path.name for path in self.root.iterdir() if self._testMethodName in path.name]

    def test_json_is_an_object_a_line_and_nothing_else(self):
        options = ("the quick", "-n", 30, "--seed", 5)
        lines = [json.loads(line) for line in self.generate(*options, "--json", "--num-samples", 3).stdout.splitlines()]
        self.assertEqual([line["seed"] for line in lines], [5, 6, 7])
        texts = self.generate(*options, "--num-samples", 3, "--no-display-prompt").stdout
        parts = re.split(r"^--- sample \d of 3 ---\n", texts, flags=re.MULTILINE)[1:]
        self.assertEqual([line["text"].removesuffix("\n") for line in lines], [part.removesuffix("\n") for part in parts])
        for line in lines:
            self.assertEqual(line["prompt"], "the quick")
            self.assertEqual((line["tokens"], line["prompt_tokens"], line["stop_reason"]), (30, 9, "length"))
            self.assertEqual(line["cropped_tokens"], 9 + 9 + 9)  # 8 of 17 tokens stay
            self.assertGreater(line["seconds"], 0)
            self.assertGreater(line["tokens_per_second"], 0)

    def test_json_fields_are_in_the_help(self):
        shown = programs.run("gpt-generate", "--help", check_code=0).stdout
        described = shown[shown.index("What an object of --json holds"):]
        line = json.loads(self.generate("a", "--json", "-n", 1).stdout)
        self.assertIsNone(line["tokens_per_second"])
        for field in line:
            self.assertRegex(described, rf"(?m)^  (prompt, )?{field}\b")

    def test_json_tells_why_a_text_ended(self):
        text = json.loads(self.generate("a", "--json", "--seed", 5).stdout)["text"]
        line = json.loads(self.generate("a", "--json", "--seed", 5, "--stop", text[20:24], "--no-display-prompt").stdout)
        self.assertEqual(line["stop_reason"], "stop text")
        self.assertEqual(line["text"], text[:text.index(text[20:24])])
        self.assertNotIn("prompt", line)

    def test_a_file_holds_what_standard_output_would(self):
        self.file.write_text("an earlier text")
        for options in (("a", "--seed", 5, "--num-samples", 2), ("a", "--seed", 5, "--json", "-n", 0)):
            done = self.generate(*options, "--output", self.file)
            self.assertEqual(done.stdout, "")
            self.assertIn(f"✓ {self.file}", done.stderr)
            without_times = lambda text: re.sub(r'"seconds":[^,]*', "", text)
            self.assertEqual(without_times(self.file.read_text()), without_times(self.generate(*options).stdout))
        self.assertEqual(self.files(), [self.file.name])

    def test_a_file_that_cannot_be_written_is_named_before_the_work(self):
        for path, why in ((self.root / "none/text.txt", "No such file or directory"), (self.root, "it is a folder"),
                          ("/dev/full", "it is not a regular file")):
            done = self.generate("a", "--output", path, code=8)
            self.assertEqual((done.stdout, len(done.stderr.splitlines())), ("", 1))
            self.assertRegex(done.stderr, f"^error: cannot write {re.escape(str(path))}: .*{why}")

    def test_no_file_for_a_prompt_that_cannot_be_read(self):
        self.generate("Ä", "--output", self.file, code=3)
        self.assertEqual(self.files(), [])

    def stop_after_a_text(self, *words, how=signal.SIGINT):
        process = self.start("the", "--seed", 5, "--num-samples", 10**6, "-n", 200, *words)
        while b"200 tokens in" not in (line := process.stderr.readline()):
            self.assertTrue(line, "it has ended by itself")
        process.send_signal(how)
        stdout, _ = process.communicate(timeout=programs.HANGS)
        return process.returncode, stdout.decode()

    def test_a_signal_keeps_the_file_as_far_as_it_is(self):
        first = self.generate("the", "--seed", 5, "-n", 200).stdout
        for how, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            self.assertEqual(self.stop_after_a_text("--output", self.file, how=how), (code, ""))
            self.assertTrue(self.file.read_text().startswith(f"--- sample 1 of 1000000 ---\n{first}"))
            self.assertTrue(self.file.read_text().endswith("\n"))
            self.assertEqual(self.files(), [self.file.name])
            self.file.unlink()

    def test_a_signal_leaves_whole_lines_of_json(self):
        code, stdout = self.stop_after_a_text("--json")
        self.assertEqual(code, 130)
        lines = [json.loads(line) for line in stdout.splitlines()]
        self.assertEqual(lines[0]["stop_reason"], "length")
        self.assertTrue(stdout.endswith("\n"))

    def test_with_interactive_they_are_refused(self):
        for options in (("--json",), ("--output", self.file)):
            done = self.generate("--interactive", *options, code=2)
            self.assertEqual((done.stdout, len(done.stderr.splitlines())), ("", 1))
            self.assertIn("--interactive", done.stderr)


class OnATerminal(generating.TrainedModel):
    """An untrained model over bytes writes any control character."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        programs.train(cls.root / "bytes", cls.root / "text.txt", training__max_steps=1, data__tokenizer="byte")

    def untrained(self, *more):
        return "--checkpoint", self.root / "bytes", "--device", "cpu", "a", "--seed", 5, "-n", 400, *more

    def shown(self, *more):
        # Raw, so that the terminal itself adds no carriage returns.
        terminal = generating.Terminal(programs.command("gpt-generate", *self.untrained(*more)), prepare=tty.setraw,
                                       stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(terminal.close)
        self.assertEqual(terminal.wait(), 0)
        return terminal.shown.decode()

    def test_control_characters_are_spelled_out(self):
        """--raw and a pipe pass them on."""
        safe = self.shown()
        self.assertIsNone(CONTROLS.search(safe))
        self.assertRegex(safe, r"\\x[01][0-9a-f]")
        raw = self.shown("--raw")
        self.assertIsNotNone(CONTROLS.search(raw))
        piped = subprocess.run(programs.command("gpt-generate", *self.untrained()), stdin=subprocess.DEVNULL, capture_output=True)
        self.assertEqual(piped.stdout.decode(), raw)  # valid UTF-8, whatever the bytes were

    def test_json_is_plain_ascii(self):
        line = self.shown("--json")
        self.assertIsNone(re.search(r"[^\x20-\x7e\n]", line))
        self.assertIsNotNone(CONTROLS.search(json.loads(line)["text"]))


if __name__ == "__main__":
    unittest.main()
