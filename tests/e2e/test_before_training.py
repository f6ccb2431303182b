"""What gpt-train says, or refuses, before its first step."""

import os
import pathlib
import resource
import subprocess
import tempfile
import unittest

import programs

# Terabytes for the activations of one batch.
HUGE = {"training.batch_size": 100_000, "model.block_size": 128, "model.n_layer": 12, "model.n_embd": 512, "model.n_head": 8}


class BeforeTraining(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = programs.write_text(self.folder, sentences=40_000)

    def options(self, **changes) -> list:
        return programs.flags({**programs.TINY, "data.text": self.text, "output_dir": self.folder / "run", **changes})

    def test_a_run_that_cannot_fit_is_refused_and_what_fits_is_named(self):
        done = programs.run("gpt-train", *self.options(**HUGE), check_code=7)
        refusal = done.stderr.splitlines()[-1]
        self.assertIn("does not fit into memory", refusal)
        self.assertIn("set training.batch_size: ", refusal)
        self.assertIn("--training.memory_check false", refusal)
        self.assertFalse((self.folder / "run" / "ckpt.pt").exists())

    def test_more_threads_than_cores_are_warned_of(self):
        done = programs.run("gpt-train", *self.options(**{"training.max_steps": 1, "threads": 4 * os.cpu_count()}), check_code=0)
        self.assertRegex(done.stderr, r"warning: threads: \d+ threads on \d+ cores? wait for each other; set threads: 0\n")

    def test_the_check_can_be_overridden(self):
        def limit_memory():
            resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))

        done = subprocess.run(programs.command("gpt-train", *self.options(**HUGE), "--training.memory_check", "false"), capture_output=True,
                              text=True, timeout=programs.HANGS, preexec_fn=limit_memory)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("warning: memory of the run: about ", done.stderr)
        self.assertIn("error: out of memory in step 1: ", done.stderr)

    def test_a_limit_of_the_process_counts(self):
        """A run that fits this machine is refused where the process may use less."""
        # The limit leaves room for what a LibTorch with CUDA maps before main, and for half of the run.
        options = self.options(**{"model.block_size": 256, "training.batch_size": 192, "model.n_embd": 256, "model.n_head": 4, "model.n_layer": 4})
        limit = 2 << 30

        def limit_memory():
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

        done = subprocess.run(programs.command("gpt-train", *options), capture_output=True, text=True, timeout=programs.HANGS, preexec_fn=limit_memory)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("does not fit into memory", done.stderr)

    def test_a_run_that_will_learn_its_text_by_heart_is_warned_of_and_starts(self):
        process = subprocess.Popen(programs.command("gpt-train", *self.options(**{"training.max_steps": 5_000_000, "training.learning_rate": 0.5})),
                                   stderr=subprocess.PIPE, text=True)
        lines = []
        for line in process.stderr:
            lines.append(line)
            if " 1/5000000 |" in line:
                process.terminate()
        process.stderr.close()
        process.wait(timeout=programs.HANGS)
        log = "".join(lines)
        self.assertRegex(log, r"warning: length: 5,000,000 steps of .* will memorize the text; use more text")
        self.assertRegex(log, r"warning: learning rate: 0.5 .* set training.learning_rate: 1e-3")

    def test_a_batch_that_the_text_cannot_fill_is_counted_as_it_is(self):
        text = programs.write_text(self.folder, sentences=300)
        done = programs.run("gpt-train", *self.options(**{"data.text": text, "training.batch_size": 1_000_000, "training.max_steps": 1,
                                                          "training.warmup_steps": 0}), check_code=0)
        self.assertIn("the text is smaller than one batch", done.stderr)

    def test_a_sample_prompt_that_cannot_be_encoded_is_refused_before_the_first_step(self):
        options = self.options(**{"training.sample_prompt": "é", "training.sample_interval": 20, "training.max_steps": 20})
        done = programs.run("gpt-train", *options, check_code=2)
        self.assertIn("error: training.sample_prompt, byte 0: 'é'", done.stderr)
        self.assertNotIn("step", done.stderr.replace("training.", ""))
        found = programs.checks(*options, "--no-probe", check_code=1)
        self.assertEqual(found["sample prompt"]["status"], "fail")

    def test_validation_text_that_is_training_text_is_warned_of(self):
        text = self.folder / "repeated.txt"
        text.write_text(programs.write_text(self.folder, sentences=40).read_text() * 20)
        done = programs.run("gpt-train", *self.options(**{"data.text": text, "training.max_steps": 1, "training.warmup_steps": 0}), check_code=0)
        self.assertRegex(done.stderr, r"warning: overlap: (\d+) of \1 windows of 64 validation tokens occur in training .* leaves out repeated documents")

    def test_a_sound_run_has_no_warning(self):
        done = programs.run("gpt-train", *self.options(), check_code=0)
        self.assertNotIn("warning", done.stderr)


if __name__ == "__main__":
    unittest.main()
