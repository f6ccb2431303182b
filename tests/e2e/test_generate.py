"""Text from a trained checkpoint: prompts from everywhere, the same text for the same seed, and errors in one line."""

import json
import os
import re
import shutil
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
        text = lambda *words, **options: self.generate("--seed", 5, *words, **options).stdout
        by_flag = text("--prompt", "the quick")
        self.assertTrue(by_flag.startswith("the quick"))
        self.assertEqual(text("the quick"), by_flag)
        self.assertGreater(len(by_flag), 200)
        self.assertEqual(text("--prompt-file", self.root / "prompt.txt"), by_flag)
        self.assertEqual(text(stdin="the quick\n"), by_flag)
        self.assertEqual(text(stdin="\ufeffthe quick\r\n"), by_flag)  # as training reads a text from Windows
        self.assertEqual(text("--prompt", "-", stdin="the quick"), by_flag)
        self.assertEqual("the quick" + text("--prompt", "the quick", "--no-display-prompt"), by_flag)

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
        # Without one it is another each time, which brings the text back.
        first, second = self.generate("a", "--json"), self.generate("a", "--json")
        first, second = json.loads(first.stdout), json.loads(second.stdout)
        self.assertNotEqual(first["text"], second["text"])
        again = self.generate("a", "--seed", first["seed"])
        self.assertEqual(again.stdout, "a" + first["text"].removesuffix("\n") + "\n")
        self.assertRegex(again.stderr, rf"(?m)^Seed {first['seed']}: 200 tokens in")
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
                                      r"validation loss \d\.\d{4}, char tokenizer with \d+ tokens")
        self.assertRegex(done.stderr, "Using CPU: .*, float32 weights, 1 thread\n")
        self.assertRegex(self.generate("a", "-n", 2, "--threads", 2).stderr, "Using CPU: .*, float32 weights, 2 threads\n")
        self.assertRegex(done.stderr, r"40 tokens in [\d.,]+ ?m?s \([\d.,]+ tokens/s\), prompt of 1 token in [\d.,]+ ?m?s; ended at --max-new-tokens")
        self.assertIn("The model sees 16 tokens at once (block_size): from there on", done.stderr)
        self.assertNotIn("at once", self.generate("a", "-n", 10).stderr)
        several = self.generate("a", "-n", 40, "--num-samples", 3).stderr
        self.assertEqual((several.count("at once"), several.count("40 tokens in")), (1, 3))
        self.assertLessEqual(len(done.stdout), 42)

    def test_stop_text(self):
        whole = self.generate("--prompt", "a", "--seed", 5, "--no-display-prompt").stdout
        stop = whole[50:52]
        cut = self.generate("--prompt", "a", "--seed", 5, "--no-display-prompt", "--stop", "~never~", "--stop", stop)
        self.assertEqual(cut.stdout.rstrip("\n"), whole[:whole.index(stop)].rstrip("\n"))
        self.assertIn("ended at a stop text", cut.stderr)

    def test_interactive_goes_on_after_a_line_it_cannot_read(self):
        done = self.generate("--interactive", "--verbose", "-n", 20, stdin="the\nÄ\nfox\n")
        self.assertEqual(done.stderr.count("20 tokens in"), 2)
        self.assertNotIn("tokens in", self.generate("--interactive", "-n", 20, stdin="the\n").stderr)
        self.assertRegex(done.stderr, "error: .*Ä")
        texts = {self.generate("--interactive", "-n", 20, "--temperature", 0, stdin=lines).stdout
                 for lines in ("the\nfox\n", "\ufeffthe\r\nfox\r\n")}
        self.assertEqual(len(texts), 1)

    def test_the_loss_is_that_of_the_weights(self):
        """The run's last weights are not its best, and it was killed before its first ckpt.pt."""
        folder = self.root / "killed"
        folder.mkdir()
        for name in ("ckpt_best.pt", "metrics.jsonl"):
            shutil.copy(self.root / "run" / name, folder)
        loaded = lambda: programs.run("gpt-generate", "--checkpoint", folder, "--device", "cpu", "a", "-n", 1, check_code=0).stderr
        records = programs.metrics(folder)
        best = min(record["val_loss"] for record in records if "val_loss" in record)
        self.assertRegex(loaded(), rf"Loaded \S+/killed/ckpt_best.pt: .* steps, validation loss {best:.4f}, char")
        shutil.copy(self.root / "run" / "ckpt.pt", folder)
        last = [record for record in records if "val_loss" in record][-1]
        last["val_loss"] = best + 1
        (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        self.assertRegex(loaded(), rf"/ckpt.pt: .* validation loss {best + 1:.4f} \(best of its run {best:.4f}: ckpt_best.pt\), char")
        (folder / "metrics.jsonl").unlink()
        self.assertIn(f"best validation loss of its run {best:.4f}, char", loaded())

    def test_a_run_on_token_ids_has_no_tokenizer(self):
        ids = self.root / "ids.bin"
        ids.write_bytes(bytes(b for i in range(3000) for b in (97 + i % 7, 0)))
        run = self.root / "ids"
        options = {key: value for key, value in programs.TINY.items() if key != "training.max_steps"}
        done = programs.run("gpt-train", *programs.flags({**options, "data.bin": ids, "model.vocab_size": 300, "output_dir": run,
                                                          "training.max_steps": 2, "training.sample_interval": 1}), check_code=0)
        self.assertRegex(done.stderr, "No samples are written: the data has no tokenizer; .*data.tokenizer")
        words = ("--checkpoint", run, "--device", "cpu", "a", "-n", 20)
        self.assert_refused(4, "has no tokenizer, because its run read token ids: .*--tokenizer", *words)
        self.assertGreater(len(programs.run("gpt-generate", *words, "--tokenizer", "byte", check_code=0).stdout), 10)
        self.assert_refused(2, "it is learned from a text", *words, "--tokenizer", "bpe:300")
        self.assert_refused(2, "has its own tokenizer: leave out --tokenizer byte", "--checkpoint", self.root / "run",
                            "--device", "cpu", "a", "--tokenizer", "byte")

    def test_dtypes(self):
        for dtype in ("auto", "float32", "bfloat16", "float16"):
            name = "float32" if dtype == "auto" else dtype
            self.assertIn(f", {name} weights, ", self.generate("--prompt", "a", "--dtype", dtype).stderr)

    def test_a_signal_ends_it_cleanly(self):
        for how, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = self.start("--prompt", "a", "-n", 10**9)
            text = process.stdout.read(100)
            process.send_signal(how)
            text += process.stdout.read()  # communicate() leaves out what has been read ahead, such as a last end of line
            self.assertIn(b"; interrupted", process.stderr.read())
            self.assertEqual(process.wait(programs.HANGS), code)
            self.assertTrue(text.endswith(b"\n"))

    def test_a_reader_may_leave(self):
        process = self.start("--prompt", "a", "-n", 10**9, stderr=subprocess.DEVNULL)
        process.stdout.read(10)
        process.stdout.close()
        self.assertEqual(process.wait(timeout=programs.HANGS), 0)

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "w") as full:
            process = self.start("--prompt", "a", stdout=full)
            self.assertIn(b"cannot write standard output: No space left on device", process.communicate(timeout=programs.HANGS)[1])
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
            self.assertIn(meaning, " ".join(shown.split()))
        self.assertIn("LibTorch 2.11", programs.run("gpt-generate", "--version", check_code=0).stdout)


if __name__ == "__main__":
    unittest.main()
