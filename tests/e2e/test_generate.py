"""Text from a trained checkpoint: prompts from everywhere, the same text for the same seed, and errors in one line."""

import os
import re
import signal
import subprocess
import unittest

import generating
import programs


class Generate(generating.TrainedModel):
    def assert_refused(self, code, message, *words, **options):
        done = programs.run("gpt-generate", *words, check_code=code, **options)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertRegex(done.stderr, "^error: .*" + message)

    def test_prompt_by_flag_file_and_standard_input(self):
        (self.root / "prompt.txt").write_text("the quick\n")
        by_flag = self.generate("--prompt", "the quick")
        self.assertTrue(by_flag.stdout.startswith("the quick"))
        self.assertEqual(self.generate("the quick").stdout, by_flag.stdout)
        self.assertGreater(len(by_flag.stdout), 200)
        self.assertEqual(self.generate("--prompt-file", self.root / "prompt.txt").stdout, by_flag.stdout)
        self.assertEqual(self.generate(stdin="the quick\n").stdout, by_flag.stdout)
        self.assertEqual(self.generate("--prompt", "-", stdin="the quick").stdout, by_flag.stdout)
        alone = self.generate("--prompt", "the quick", "--no-display-prompt").stdout
        self.assertEqual("the quick" + alone, by_flag.stdout)

    def test_a_prompt_of_several_arguments_is_shown_in_quotes(self):
        self.assert_refused(2, 'quotes: gpt-generate --seed 5 "the quick brown fox"', "--seed", 5, "the", "quick", "brown", "fox")
        self.assert_refused(2, "choose one: .*--prompt", "the", "--prompt", "quick")

    def test_a_prompt_that_cannot_be_read_is_refused_before_anything_is_written(self):
        done = self.generate("the Äpfel", code=3)
        self.assertEqual(done.stdout, "")
        error = done.stderr.splitlines()[-1]
        self.assertRegex(error, r"^error: prompt, byte 4: 'Ä' \(U\+00C4\) is not in the vocabulary of \d+ characters")
        self.assertIn("this model knows only: newline space , . 0-9 : ; a-z é ï 語", error)

    def test_same_seed_same_text(self):
        text = lambda *words: self.generate("--prompt", "a", *words).stdout
        self.assertEqual(text("--seed", 5), text("--seed", 5))
        self.assertNotEqual(text("--seed", 5), text("--seed", 6))
        greedy = text("--temperature", 0, "--seed", 5)
        self.assertEqual(greedy, text("--top-k", 1, "--seed", 6))
        self.assertEqual(greedy, text("--min-p", 1, "--seed", 7))
        self.assertNotEqual(greedy, text("--temperature", 0, "--repetition-penalty", 1.5))

    def test_samples_differ_and_are_told_apart(self):
        options = ("--prompt", "a", "-n", 30, "--seed", 5)
        several = self.generate(*options, "--num-samples", 3).stdout
        parts = re.split(r"^--- sample \d of 3 ---\n", several, flags=re.MULTILINE)
        self.assertEqual(parts[0], "")
        self.assertEqual(len(set(parts[1:])), 3)
        self.assertEqual(parts[1], self.generate(*options).stdout)  # the first is what one sample would have been

    def test_everything_but_the_text_is_on_standard_error(self):
        done = self.generate("a", "--max_new_tokens", 40)
        self.assertRegex(done.stderr, r"Loaded .*ckpt\.pt: \d+\.\dk parameters after 24 training steps, "
                                      r"best validation loss \d\.\d+, char tokenizer with \d+ tokens")
        self.assertRegex(done.stderr, r"40 tokens in [\d.,]+ ?m?s \([\d.,]+ tokens/s\), prompt of 1 token in [\d.,]+ ?m?s; ended at --max-new-tokens")
        self.assertRegex(done.stderr, r"note: .* context of 16 tokens \(block_size\): dropped the oldest \d+ tokens")
        self.assertNotIn("note:", self.generate("a", "-n", 10).stderr)
        self.assertLessEqual(len(done.stdout), 42)

    def test_stop_text(self):
        whole = self.generate("--prompt", "a", "--no-display-prompt").stdout
        stop = whole[50:52]
        cut = self.generate("--prompt", "a", "--no-display-prompt", "--stop", "~never~", "--stop", stop)
        self.assertEqual(cut.stdout.rstrip("\n"), whole[:whole.index(stop)].rstrip("\n"))
        self.assertIn("ended at a stop text", cut.stderr)

    def test_interactive_goes_on_after_a_line_it_cannot_read(self):
        done = self.generate("--interactive", "-n", 20, stdin="the\nÄ\nfox\n")
        self.assertEqual(done.stderr.count("20 tokens in"), 2)
        self.assertRegex(done.stderr, "error: .*Ä")

    def test_dtypes(self):
        for dtype in ("auto", "float32", "bfloat16"):
            self.generate("--prompt", "a", "--dtype", dtype)
        self.assert_refused(2, "float16", "--checkpoint", self.root / "run", "--device", "cpu", "--dtype", "float16")

    def test_a_signal_ends_it_cleanly(self):
        for how, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = self.start("--prompt", "a", "-n", 10**9)
            process.stdout.read(100)
            process.send_signal(how)
            stdout, stderr = process.communicate(timeout=60)
            self.assertEqual(process.returncode, code)
            self.assertTrue(stdout.endswith(b"\n"))
            self.assertIn(b"; interrupted", stderr)

    def test_a_reader_may_leave(self):
        process = self.start("--prompt", "a", "-n", 10**9, stderr=subprocess.DEVNULL)
        process.stdout.read(10)
        process.stdout.close()
        self.assertEqual(process.wait(timeout=60), 0)

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "w") as full:
            process = self.start("--prompt", "a", stdout=full)
            self.assertIn(b"cannot write standard output: No space left on device", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 8)

    def test_errors_are_one_line_with_the_right_status(self):
        run = ("--checkpoint", self.root / "run")
        self.assert_refused(4, "there is no run in models/; train one", cwd=self.root)
        self.assert_refused(4, "", "--checkpoint", self.root / "text.txt")
        self.assert_refused(2, "did you mean '--temperature'", *run, "--temprature", 1)
        self.assert_refused(2, "--top-p must be a number from 1e-9 to 1, got .0.", *run, "--top_p", 0)
        self.assert_refused(2, "", *run, "--device", "tpu")
        self.assert_refused(2, "--min-p must be a number from 0 to 1", *run, "--min-p", -1)
        self.assert_refused(2, "--repetition-penalty must be a number from 0.01 to 100", *run, "--repetition-penalty", 0)
        self.assertRegex(self.generate("--prompt-file", self.root / "none.txt", code=3).stderr, "none.txt")
        large = self.root / "large.txt"
        large.touch()
        os.truncate(large, 20_000_000_000)
        self.assertRegex(self.generate("--prompt-file", large, code=3).stderr, "large.txt: .*20,000,000,000 .*a prompt has at most 67,108,864")
        with open(large) as stdin:
            refused = subprocess.run(programs.command("gpt-generate", "--checkpoint", self.root / "run"), stdin=stdin, capture_output=True, text=True)
        self.assertEqual(refused.returncode, 3)
        self.assertRegex(refused.stderr, "standard input: a prompt has at most 67,108,864 bytes")

    def test_help_and_version(self):
        shown = programs.run("gpt-generate", "--help", check_code=0).stdout
        for flag in ("--temperature", "--top-k", "--top-p", "--min-p", "--repetition-penalty", "--seed", "--num-samples",
                     "--max-new-tokens", "--prompt", "--prompt-file", "--interactive", "--device", "--dtype", "--stop",
                     "--checkpoint", "--output", "--json"):
            self.assertIn(flag, shown)
        for meaning in ('gpt-generate "Once upon a time"', "[prompt]", "below 1 is safer, above 1 is wilder",
                        "continue each line", "nothing else to save"):
            self.assertIn(meaning, shown)
        self.assertIn("LibTorch 2.11", programs.run("gpt-generate", "--version", check_code=0).stdout)


if __name__ == "__main__":
    unittest.main()
