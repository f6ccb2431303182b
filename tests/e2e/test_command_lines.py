"""What the programs answer to a wrong command line or configuration: one line that says what to write instead."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from programs import BIN, run

PROGRAMS = ("gpt-train", "gpt-generate", "gpt-prepare", "gpt-export", "gpt-eval", "gpt-serve", "gpt-board", "gpt-prune", "gpt-diagnose",
            "gpt-bench")


class CommandLines(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpt-command-lines-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def file(self, name, text="some text\n"):
        path = self.folder / name
        path.write_bytes(text.encode())
        return path

    def assert_refused(self, message, program, *words):
        done = run(program, *words, check_code=2)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr, f"error: {message}\n")

    def test_the_configuration_is_read_alike_by_gpt_train_and_gpt_diagnose(self):
        config = self.file("c.yaml", "training:\r\n\tbatch_size: 32\r\n")
        for program in ("gpt-train", "gpt-diagnose"):
            self.assert_refused(f"{config}:2:1: a tab in the indentation; indent with spaces", program, "--config", config)
            self.assert_refused("unknown flag '--fp16': set training.dtype to bfloat16, float16, tf32 or float32", program, "--fp16")

    def test_patterns_that_the_shell_expanded(self):
        a, b = self.file("a.txt"), self.file("b.txt", "more text\n")
        self.assert_refused(f"--data takes one value, but 2 files follow it ('{a}', '{b}'); if the shell expanded a pattern, "
                            f"put the pattern in quotes: --data '{self.folder}/*.txt'", "gpt-train", "--data", a, b)
        run("gpt-prepare", "--input", a, b, "--output", self.folder / "out", "--tokenizer", "byte", "--validation-fraction", 0,
            check_code=0)
        self.assertEqual((self.folder / "out/tokens_bpe.bin").stat().st_size, 2 * 2 * len("some text\n"))
        self.assert_refused(f"'{a}' has no flag before it; did you mean --input {a}?", "gpt-prepare", a)

    def test_a_bpe_tokenizer_needs_its_size(self):
        text = self.file("a.txt")
        message = "tokenizer 'bpe': bpe needs the size of its vocabulary, as in bpe:8192"
        self.assert_refused(message, "gpt-train", "--data", text, "--tokenizer", "bpe", "--n_layer", 1, "--output", self.folder / "run")
        self.assert_refused(message, "gpt-prepare", "--input", text, "--tokenizer", "bpe", "--output", self.folder / "out")

    def test_help_begins_with_what_people_need_first_and_ends_with_the_exit_status(self):
        all_shown = {program: run(program, "--help", check_code=0).stdout for program in PROGRAMS}
        for program, shown in all_shown.items():
            self.assertLessEqual(max(map(len, shown.splitlines())), 80, program)
            self.assertIn("\nExamples\n  ", shown, program)
            self.assertIn("\nExit status\n  0 ", shown, program)
        shown = all_shown["gpt-train"]
        first, examples = shown.split("\nExamples\n")
        self.assertEqual(re.findall(r"^  --(\w+)", first, re.M), ["data", "dataset", "tokenizer", "config", "output_dir", "max_steps",
                                                                  "batch_size", "learning_rate", "device", "restart"])
        self.assertEqual(len(re.findall(r"^  gpt-train ", examples.split("\n\n")[0], re.M)), 3)
        self.assertIn("log goes to standard error", " ".join(shown.split()))
        self.assertRegex(shown, r"\nExit status\n(  .*\n)+$")

    def test_gpt_bench_needs_a_command(self):
        self.assertRegex(run("gpt-bench", check_code=2).stderr, "^error: gpt-bench needs a command, such as ladder; ")

    def test_another_libtorch_in_the_environment_does_not_matter(self):
        other = self.folder / "other"
        other.mkdir()
        for name in ("libc10.so", "libtorch_cpu.so", "libgomp.so.1"):
            shutil.copy(os.environ["GPT_FAILING_CALLS"], other / name)  # a library, but not that one
        for program in PROGRAMS:
            version = run(program, "--version", env={"LD_LIBRARY_PATH": str(other)}, check_code=0).stdout
            self.assertRegex(version, rf"^{program} \d+\.\d+\.\d+ \(commit .*\)\nLibTorch ")
            dynamic = subprocess.run(["readelf", "-d", BIN / program], capture_output=True, text=True, check=True).stdout
            self.assertIn("(RPATH)", dynamic, program)
            self.assertNotIn("(RUNPATH)", dynamic, program)
            paths = re.search(r"rpath: \[(.*)\]", dynamic)[1].split(":")
            self.assertEqual(paths[0], "$ORIGIN/../lib/gpt-train", "the OpenMP beside the programs goes first")

    def test_a_tilde_is_the_home_folder(self):
        text = self.file("text.txt", "some text " * 500)
        home = {"HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / "cache")}
        tiny = ["--n_layer", 1, "--n_embd", 16, "--block_size", 8, "--batch_size", 2, "--max_steps", 1, "--device", "cpu", "--threads", 1]
        run("gpt-prepare", "--input=~/text.txt", "--tokenizer", "byte", "--output=~/data", cwd=self.folder, env=home, check_code=0)
        self.file("c.yaml", "output_dir: ~/runs/first\ndata: {text: ~/text.txt}\n")
        run("gpt-train", "--config=~/c.yaml", *tiny, cwd=self.folder, env=home, check_code=0)
        run("gpt-generate", "--checkpoint=~/runs/first", "--max-new-tokens", 1, "--output=~/sample.txt", cwd=self.folder, env=home, check_code=0)
        for made in ("data/tokens_bpe.bin", "runs/first/ckpt.pt", "sample.txt"):
            self.assertTrue((self.folder / made).exists(), made)
        self.assertFalse((self.folder / "~").exists())
        self.assertTrue(text.exists())

    def test_values_of_the_wrong_kind(self):
        self.assert_refused("--top-k must be a whole number >= 0, got 'x'", "gpt-generate", "--top-k", "x")
        self.assert_refused("unknown flag '--max_length': -n or --max-new-tokens sets how many tokens it writes at most", "gpt-generate", "--max_length", 9)
        self.assert_refused("--format must be one of prepared, nanogpt, llmc, got 'llm.c'; did you mean 'llmc'?",
                            "gpt-prepare", "--format", "llm.c")


if __name__ == "__main__":
    unittest.main()
