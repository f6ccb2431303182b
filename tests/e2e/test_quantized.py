"""Weights of 8 and 4 bits: the same from a checkpoint and from a file made of it, in every program that computes, and refused by all others."""

import json
import os
import unittest

import generating
import programs
import serving

PROMPT = ("--prompt", "the quick", "-n", 12, "--temperature", 0, "--threads", 1)


class Quantized(generating.TrainedModel):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for dtype in ("int8", "int4"):
            programs.run("gpt-export", "--checkpoint", cls.root / "run", "--format", "quantized", "--output", cls.file(dtype), "--dtype", dtype,
                         check_code=0)

    @classmethod
    def file(cls, dtype):
        return cls.root / "made" / f"{dtype}.pt"

    def assert_refused(self, code, message, program, *words):
        done = programs.run(program, *words, check_code=code)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertRegex(done.stderr, "^error: .*" + message)

    def test_a_file_is_what_its_checkpoint_is_when_quantized_while_loading(self):
        for dtype in ("int8", "int4"):
            while_loading = self.generate(*PROMPT, "--dtype", dtype)
            once = programs.run("gpt-generate", "--checkpoint", self.file(dtype), "--device", "cpu", *PROMPT, check_code=0)
            self.assertEqual(once.stdout, while_loading.stdout)
            self.assertTrue(once.stdout.startswith("the quick"), once.stdout)
            for done in (once, while_loading):
                self.assertRegex(done.stderr, rf"Using CPU: .*, {dtype} weights \([\d.]+ kB\), 1 thread\n")
            self.assertRegex(once.stderr, r"Loaded .*\.pt: .* parameters after 24 training steps, char tokenizer")
            again = programs.run("gpt-generate", "--checkpoint", self.file(dtype), "--device", "cpu", *PROMPT, "--dtype", dtype, check_code=0)
            self.assertEqual(again.stdout, once.stdout)

    def test_a_second_file_is_the_same_to_the_byte(self):
        second = self.root / "second.pt"
        for dtype in ("int8", "int4"):  # the second over the first
            done = programs.run("gpt-export", "--checkpoint", self.root / "run", "--format", "quantized", "--output", second, "--dtype", dtype,
                                check_code=0)
            self.assertRegex(done.stderr, rf"second.pt: .* parameters in {dtype}, [\d.]+ kB of weights")
            self.assertEqual(second.read_bytes(), self.file(dtype).read_bytes())

    def test_evaluated_it_is_nearly_as_good(self):
        def loss(*words):
            done = programs.run("gpt-eval", "--device", "cpu", "--threads", 1, "--data", self.root / "text.txt", "--json", *words, check_code=0)
            report = json.loads(done.stdout)
            return report["dtype"], report["results"][0]["metrics"]["loss"]["value"]

        dtype, wide = loss("--checkpoint", self.root / "run")
        self.assertEqual(dtype, "float32")
        for name, most in (("int8", 0.005), ("int4", 0.1)):
            dtype, found = loss("--checkpoint", self.file(name))
            self.assertEqual(dtype, name)
            self.assertEqual((name, found), loss("--checkpoint", self.root / "run", "--dtype", name))
            self.assertNotEqual(found, wide)
            self.assertLess(abs(found - wide), most * wide, name)

    def test_it_is_served(self):
        server = serving.Server("--checkpoint", self.file("int8"), "--device", "cpu", "--threads", 1)
        self.addCleanup(server.close)
        status, answer = server.ask("POST", "/v1/completions", {"prompt": "the quick", "max_tokens": 12, "temperature": 0})
        self.assertEqual(status, 200, answer)
        wanted = self.generate(*PROMPT, "--dtype", "int8", "--no-display-prompt").stdout
        self.assertEqual(answer["choices"][0]["text"], wanted.removesuffix("\n"))

    def test_it_is_not_trained_or_exported(self):
        file, text = self.file("int8"), self.root / "text.txt"
        message = "int8.pt is a quantized model, which can be computed with and not trained"
        for key in ("training.init_from", "training.resume_from"):
            done = programs.run("gpt-train", "--data.text", text, "--output_dir", self.root / "never", "--device", "cpu", f"--{key}", file)
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertRegex(done.stderr.splitlines()[-1], f"^error: .*{message}")
        self.assertFalse((self.root / "never" / "ckpt.pt").exists())
        self.assert_refused(4, message, "gpt-export", "--checkpoint", file, "--output", self.root / "exported")

    def test_combinations_that_cannot_be(self):
        run, file = self.root / "run", self.file("int8")
        other = self.root / "other.txt"
        other.write_text("something else")
        for message, words in (("--format quantized needs --dtype int8 or int4", ("--format", "quantized", "--output", self.root / "x.pt")),
                               ("--dtype int8 is a type of quantized models: add --format quantized",
                                ("--dtype", "int8", "--output", self.root / "x")),
                               ("something else than a quantized model",
                                ("--format", "quantized", "--dtype", "int8", "--output", other)),
                               ("it is a folder", ("--format", "quantized", "--dtype", "int8", "--output", run))):
            self.assert_refused(2, message, "gpt-export", "--checkpoint", run, *words)
        self.assertEqual(other.read_text(), "something else")
        for dtype in ("float32", "bfloat16", "int4"):
            self.assert_refused(2, "int8.pt has int8 weights: leave out --dtype", "gpt-generate", "--checkpoint", file, "--device", "cpu",
                                "--prompt", "a", "--dtype", dtype)

    def test_damage_is_found(self):
        damaged = self.root / "damaged.pt"
        content = bytearray(self.file("int4").read_bytes())
        content[len(content) // 2] ^= 8
        damaged.write_bytes(content)
        self.assert_refused(4, "damaged", "gpt-generate", "--checkpoint", damaged, "--device", "cpu", "--prompt", "a")
        os.truncate(damaged, 1000)
        self.assert_refused(4, "damaged.pt", "gpt-eval", "--checkpoint", damaged, "--device", "cpu", "--data", self.root / "text.txt")


if __name__ == "__main__":
    unittest.main()
