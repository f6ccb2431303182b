"""Text from a trained checkpoint: prompts from everywhere, the same text for the same seed, and errors in one line."""

import os
import pathlib
import pty
import re
import signal
import subprocess
import tempfile
import time
import tty
import unittest

import programs


class Generate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        programs.train(cls.root / "run", programs.write_text(cls.root), training__max_steps=3)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def generate(self, *words, code=0, **options):
        return programs.run("gpt-generate", "--checkpoint", self.root / "run", "--device", "cpu", *words,
                            check_code=code, **options)

    def assert_refused(self, code, message, *words, **options):
        done = programs.run("gpt-generate", *words, check_code=code, **options)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertRegex(done.stderr, "^error: .*" + message)

    def test_prompt_by_flag_file_and_standard_input(self):
        (self.root / "prompt.txt").write_text("the quick\n")
        by_flag = self.generate("--prompt", "the quick")
        self.assertTrue(by_flag.stdout.startswith("the quick"))
        self.assertGreater(len(by_flag.stdout), 200)
        self.assertEqual(self.generate("--prompt-file", self.root / "prompt.txt").stdout, by_flag.stdout)
        self.assertEqual(self.generate(stdin="the quick\n").stdout, by_flag.stdout)
        self.assertEqual(self.generate("--prompt", "-", stdin="the quick").stdout, by_flag.stdout)
        alone = self.generate("--prompt", "the quick", "--no-display-prompt").stdout
        self.assertEqual("the quick" + alone, by_flag.stdout)

    def test_same_seed_same_text(self):
        text = lambda *words: self.generate("--prompt", "a", *words).stdout
        self.assertEqual(text("--seed", 5), text("--seed", 5))
        self.assertNotEqual(text("--seed", 5), text("--seed", 6))
        self.assertEqual(text("--temperature", 0, "--seed", 5), text("--top-k", 1, "--seed", 6))

    def test_samples_differ_and_are_told_apart(self):
        options = ("--prompt", "a", "-n", 30, "--seed", 5)
        several = self.generate(*options, "--num-samples", 3).stdout
        parts = re.split(r"^--- sample \d of 3 ---\n", several, flags=re.MULTILINE)
        self.assertEqual(parts[0], "")
        self.assertEqual(len(set(parts[1:])), 3)
        self.assertEqual(parts[1], self.generate(*options).stdout)  # the first is what one sample would have been

    def test_everything_but_the_text_is_on_standard_error(self):
        done = self.generate("--prompt", "a", "--max_new_tokens", 40)
        self.assertRegex(done.stderr, r"ckpt\.pt: step 3, .*parameters")
        self.assertRegex(done.stderr, r"40 tokens in .* tokens/s; prompt of 1 tokens")
        self.assertRegex(done.stderr, r"note: \d+ tokens of context were dropped \(block_size 16\)")
        self.assertNotIn("note:", self.generate("--prompt", "a", "-n", 10).stderr)
        self.assertLessEqual(len(done.stdout), 42)

    def test_stop_text(self):
        whole = self.generate("--prompt", "a", "--no-display-prompt").stdout
        stop = whole[50:52]
        cut = self.generate("--prompt", "a", "--no-display-prompt", "--stop", "~never~", "--stop", stop)
        self.assertEqual(cut.stdout.rstrip("\n"), whole[:whole.index(stop)].rstrip("\n"))
        self.assertIn("stopped: stop text", cut.stderr)

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
            process = subprocess.Popen(
                programs.command("gpt-generate", "--checkpoint", self.root / "run", "--prompt", "a", "-n", 10**9),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdout.read(100)
            process.send_signal(how)
            stdout, stderr = process.communicate(timeout=60)
            self.assertEqual(process.returncode, code)
            self.assertTrue(stdout.endswith(b"\n"))
            self.assertIn(b"stopped: interrupted", stderr)

    def test_a_reader_may_leave(self):
        process = subprocess.Popen(
            programs.command("gpt-generate", "--checkpoint", self.root / "run", "--prompt", "a", "-n", 10**9),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdout.read(10)
        process.stdout.close()
        self.assertEqual(process.wait(timeout=60), 0)

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run(programs.command("gpt-generate", "--checkpoint", self.root / "run", "--prompt", "a"),
                                  stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 8)
        self.assertIn("No space left on device", done.stderr)

    def test_a_terminal_sees_control_characters_spelled_out(self):
        """An untrained model over bytes writes any of them; --raw and a pipe pass them on."""
        programs.train(self.root / "bytes", self.root / "text.txt", training__max_steps=1, data__tokenizer="byte")
        words = ("--checkpoint", self.root / "bytes", "--prompt", "a", "-n", 400)
        controls = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")

        def on_terminal(*more):
            master, slave = pty.openpty()
            tty.setraw(slave)  # so that the terminal itself adds no carriage returns
            process = subprocess.Popen(programs.command("gpt-generate", *words, *more), stdin=slave, stdout=slave,
                                       stderr=subprocess.DEVNULL)
            os.close(slave)
            shown = b""
            try:
                while piece := os.read(master, 4096):
                    shown += piece
            except OSError:  # how Linux says that the other side is closed
                pass
            os.close(master)
            self.assertEqual(process.wait(timeout=60), 0)
            return shown

        safe = on_terminal()
        self.assertIsNone(controls.search(safe))
        self.assertRegex(safe, rb"\\x[01][0-9a-f]")
        raw = on_terminal("--raw")
        self.assertIsNotNone(controls.search(raw))
        piped = subprocess.run(programs.command("gpt-generate", *words), stdin=subprocess.DEVNULL, capture_output=True)
        self.assertEqual(piped.stdout, raw)
        piped.stdout.decode()  # valid UTF-8, whatever the bytes were

    def test_interactive_on_a_terminal(self):
        """Ctrl-C ends a text but not the program; Ctrl-D does."""
        master, slave = pty.openpty()
        process = subprocess.Popen(
            programs.command("gpt-generate", "--checkpoint", self.root / "run", "--interactive", "-n", 10**9),
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)))  # makes it the controlling terminal
        os.close(slave)
        shown = b""

        def read_until(text):
            nonlocal shown
            deadline = time.monotonic() + 60
            while text not in shown and time.monotonic() < deadline:
                shown += os.read(master, 4096)
            self.assertIn(text, shown)
            shown = shown[shown.index(text) + len(text):]

        read_until(b"> ")
        for _ in range(2):
            os.write(master, b"the\n")
            read_until(b"the\r\n")
            os.read(master, 50)
            os.write(master, b"\x03")
            read_until(b"stopped: interrupted")
            read_until(b"> ")
        os.write(master, b"\x04")
        self.assertEqual(process.wait(timeout=60), 0)
        os.close(master)

    def test_errors_are_one_line_with_the_right_status(self):
        run = ("--checkpoint", self.root / "run")
        self.assert_refused(4, "models/run/ckpt.pt: no such checkpoint", cwd=self.root)
        self.assert_refused(4, "", "--checkpoint", self.root / "text.txt")
        self.assert_refused(2, "did you mean '--temperature'", *run, "--temprature", 1)
        self.assert_refused(2, "top_p", *run, "--top_p", 0)
        self.assert_refused(2, "", *run, "--device", "tpu")
        self.assertRegex(self.generate("--prompt", "Äh", code=3).stderr, "error: .*'Ä'")
        self.assertRegex(self.generate("--prompt-file", self.root / "none.txt", code=3).stderr, "none.txt")

    def test_help_and_version(self):
        shown = programs.run("gpt-generate", "--help", check_code=0).stdout
        for flag in ("--temperature", "--top-k", "--top-p", "--seed", "--num-samples", "--max-new-tokens", "--prompt",
                     "--prompt-file", "--interactive", "--device", "--dtype", "--stop", "--checkpoint"):
            self.assertIn(flag, shown)
        self.assertIn("LibTorch 2.11", programs.run("gpt-generate", "--version", check_code=0).stdout)


if __name__ == "__main__":
    unittest.main()
