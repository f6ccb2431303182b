"""training.total_batch_size and training.batch_size: auto, as a user meets them."""

import json
import pathlib
import re
import resource
import subprocess
import tempfile
import unittest

import programs

CHOICE = r"training.batch_size: auto chose (\d+) sequences?, (\d+) micro-steps? an update \(the plan: [\d.]+ \w+ of [\d.]+ \w+\)"
TOTAL = 160
# A sequence takes some megabytes, so that a limit of the process decides how many fit.
LARGE = {"model.n_layer": 4, "model.n_embd": 128, "model.block_size": 256, "training.max_steps": 1, "training.warmup_steps": 0,
         "training.eval_interval": 0, "training.total_batch_size": TOTAL, "training.batch_size": "auto"}
# Too little for all sequences at once. A LibTorch with CUDA maps half a gigabyte before main.
LIMIT = (3 << 29) if "CUDA not built" in programs.run("gpt-train", "--version").stdout else 7 << 28


class BatchSize(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = programs.write_text(self.folder, sentences=4000)

    def options(self, name="run", **changes) -> dict:
        base = {key: value for key, value in programs.TINY.items() if key != "training.gradient_accumulation_steps"}
        return {**base, "training.batch_size": "auto", "training.total_batch_size": 8, "data.text": self.text,
                "output_dir": self.folder / name, **changes}

    def train(self, options, limit=None, check_code=0):
        def limit_memory():
            if limit:
                resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

        done = subprocess.run(programs.command("gpt-train", *programs.flags(options)), capture_output=True, text=True, timeout=programs.HANGS,
                              stdin=subprocess.DEVNULL, preexec_fn=limit_memory)
        self.assertEqual(done.returncode, check_code, done.stderr)
        return done.stderr

    def chosen(self, log) -> tuple:
        self.assertRegex(log, CHOICE)
        batch_size, micro_steps = re.search(CHOICE, log).groups()
        return int(batch_size), int(micro_steps)

    def test_the_choice_is_said_saved_and_the_run_that_it_names(self):
        log = self.train(self.options("auto"))
        self.assertEqual(self.chosen(log), (8, 1), "8 sequences of kilobytes fit everywhere")
        saved = (self.folder / "auto/effective_config.yaml").read_text()
        for line in ("batch_size: 8 ", "gradient_accumulation_steps: 1 ", "total_batch_size: 8 "):
            self.assertIn("  " + line, saved)
        self.train(self.options("written", **{"training.batch_size": 8}))
        self.assertEqual(programs.losses(self.folder / "auto"), programs.losses(self.folder / "written"))

    def test_a_total_is_the_same_run_as_its_factors(self):
        self.train(self.options("total", **{"training.batch_size": 4}))
        factors = self.options("factors", **{"training.batch_size": 4, "training.gradient_accumulation_steps": 2})
        del factors["training.total_batch_size"]
        self.train(factors)
        self.assertEqual(programs.losses(self.folder / "total"), programs.losses(self.folder / "factors"))
        self.train({**factors, "output_dir": self.folder / "total", "training.max_steps": 26})  # and may be resumed as such

    @programs.long
    def test_less_memory_means_a_smaller_divisor_and_the_same_update(self):
        roomy = self.chosen(self.train(self.options("roomy", **LARGE)))
        tight_log = self.train(self.options("tight", **LARGE), LIMIT)
        tight = self.chosen(tight_log)
        self.assertLess(tight[0], roomy[0])
        for batch_size, micro_steps in (roomy, tight):
            self.assertEqual(batch_size * micro_steps, TOTAL)
        self.assertNotIn("warning: memory", tight_log)
        self.assertIn(f"{TOTAL} sequences = ", tight_log)

    @programs.long
    def test_a_resumed_run_keeps_the_choice_bit_for_bit_whatever_memory_there_is(self):
        steps = {**LARGE, "training.lr_schedule": "constant", "training.max_steps": 2}
        batch_size, _ = self.chosen(self.train(self.options("whole", **steps), LIMIT))
        self.train(self.options("stopped", **{**steps, "training.max_steps": 1}), LIMIT)
        log = self.train(self.options("stopped", **steps))
        self.assertNotRegex(log, CHOICE)
        self.assertIn(f" batch_size: {batch_size} ", (self.folder / "stopped/effective_config.yaml").read_text())
        self.assertEqual(programs.losses(self.folder / "whole"), programs.losses(self.folder / "stopped"))
        other = self.train(self.options("stopped", **{**steps, "training.total_batch_size": 2 * TOTAL}), check_code=4)
        self.assertIn(f"training.total_batch_size: {TOTAL} -> {2 * TOTAL}", other)

    def test_only_the_validation_of_a_run_needs_no_choice(self):
        self.train(self.options())
        done = programs.run("gpt-train", "--eval-only", *programs.flags(self.options()), check_code=0)
        self.assertIn("val loss", done.stdout)

    def test_diagnose_shows_the_choice_here_and_for_a_card(self):
        words = programs.flags(self.options())
        found = programs.checks(*words, "--no-probe", check_code=0)
        self.assertRegex(found["batch size"]["detail"], CHOICE)
        self.assertIn("8 sequences a step", found["batch"]["detail"])
        gpt2 = ("--preset", "gpt2_small", "--vocab-size", 50257, "--steps-per-epoch", 1000, "--batch-size", "auto", "--total-batch-size", 512)
        sizes = []
        for card in ("GTX 1650 Ti", "RTX 4080 SUPER", "A100 80GB"):
            found = programs.checks("--gpu", card, *gpt2)
            batch_size, micro_steps = self.chosen(found["batch size"]["detail"])
            self.assertEqual(batch_size * micro_steps, 512)
            largest = found["memory of the run"]["values"]["largest_batch_size"]
            self.assertTrue(batch_size <= largest < 2 * batch_size, "the divisors of 512 are powers of two")
            self.assertEqual(found["memory of the run"]["status"], "pass")
            sizes.append(batch_size)
        self.assertEqual(sizes, sorted(set(sizes)), "a larger card takes more at a time")

    def test_diagnose_goes_on_where_nothing_can_be_chosen(self):
        auto = ("--batch-size", "auto", "--total-batch-size", 512, "--steps-per-epoch", 1000, "--epochs", 1)
        found = programs.checks(*auto, "--seconds-per-step", 2, check_code=0)
        self.assertEqual(found["time"]["values"]["seconds_left"], 2000)
        found = programs.checks(*auto, "--gpu", "T4")
        self.assertEqual(found["batch size"]["status"], "warn")

    def test_bench_measures_what_would_be_chosen(self):
        done = programs.run("gpt-bench", "measure", "--updates", 2, "--warm-up", 0, *programs.flags(self.options()), check_code=0)
        self.assertRegex(done.stderr, CHOICE)
        self.assertGreater(json.loads(done.stdout)["tokens_per_second"], 0)

    def test_contradictions_are_refused_in_a_line(self):
        for changes, part in (
                ({"training.total_batch_size": "auto"}, "set total_batch_size, such as 64, or batch_size to a number"),
                ({"training.batch_size": 3}, "set total_batch_size to 6 or 9, or batch_size to 2 or 4"),
                ({"training.gradient_accumulation_steps": 4}, "leave that out, or set batch_size to a number"),
                ({"training.batch_size": 4, "training.gradient_accumulation_steps": 3}, "set gradient_accumulation_steps to 2, or total_batch_size to 12")):
            for program in ("gpt-train", "gpt-diagnose"):
                done = programs.run(program, *programs.flags(self.options(**changes)), check_code=2)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(part, done.stderr)


if __name__ == "__main__":
    unittest.main()
