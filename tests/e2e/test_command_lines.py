"""What the programs answer to a wrong command line or configuration: one line that says what to write instead."""

import pathlib
import shutil
import tempfile
import unittest

from programs import run


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
        a, b = self.file("a.txt"), self.file("b.txt")
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

    def test_values_of_the_wrong_kind(self):
        self.assert_refused("--top-k must be a whole number >= 0, got 'x'", "gpt-generate", "--top-k", "x")
        self.assert_refused("--seed is given twice; keep one", "gpt-generate", "--seed", 1, "--seed", 2)
        self.assert_refused("--format must be one of prepared, nanogpt, llmc, got 'llm.c'; did you mean 'llmc'?",
                            "gpt-prepare", "--format", "llm.c")


if __name__ == "__main__":
    unittest.main()
