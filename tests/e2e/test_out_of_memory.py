"""A run that really runs out of memory: what it says, that its checkpoint is intact, and that the settings it names do fit."""

import pathlib
import re
import resource
import subprocess
import tempfile
import unittest

import programs

# Narrow and long, so that activations take gigabytes and a step takes little time.
LARGE = {"model.n_layer": 8, "model.n_head": 2, "model.n_embd": 64, "model.block_size": 256, "model.dropout": 0, "training.batch_size": 160,
         "training.gradient_accumulation_steps": 1, "training.eval_interval": 0, "training.use_amp": "false", "training.memory_check": "false"}


class OutOfMemory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = programs.write_text(self.folder, sentences=40_000)
        self.run_folder = self.folder / "run"

    def words(self, changes: dict) -> list:
        return programs.flags({**programs.TINY, **LARGE, "data.text": self.text, "output_dir": self.run_folder, **changes})

    def train(self, changes: dict, limit=None):
        """`limit`: the kind of limit of the process and its bytes."""
        return subprocess.run(programs.command("gpt-train", *self.words(changes)), capture_output=True, text=True, timeout=programs.HANGS,
                              preexec_fn=limit and (lambda: resource.setrlimit(limit[0], (limit[1], limit[1]))))

    def a_limit_for_half_of_the_run(self, kind):
        """The program as it is after a step of a single sequence, and half of what the tensors of the run need."""
        values = programs.checks(*self.words({}), "--no-probe")["memory of the run"]["values"]
        small = {"training.batch_size": 1, "training.max_steps": 1_000_000, "output_dir": self.folder / "small"}
        limit = lambda: resource.setrlimit(kind, (1 << 45, 1 << 45))  # so that it allocates as the run will
        field = {resource.RLIMIT_AS: "VmSize", resource.RLIMIT_DATA: "VmData"}[kind]
        program, = programs.memory_after_two_steps(*self.words(small), field=field, limit=limit)
        return kind, int(program + (values["needed_bytes"] - values["program_bytes"]) / 2)

    def settings_named_by(self, done, index) -> dict:
        """A way that the line "What would fit" offers."""
        line = next(line for line in done.stderr.splitlines() if line.startswith("What would fit: "))
        return dict(re.findall(r"(training\.\w+): (\w+)", line.split("), or ")[index]))

    @programs.long
    def test_nothing_is_saved_yet_and_the_smaller_batch_fits(self):
        for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
            with self.subTest(kind):
                self.run_folder = self.folder / str(kind)
                limit = self.a_limit_for_half_of_the_run(kind)
                done = self.train({}, limit=limit)
                self.assertEqual(done.returncode, 7, done.stderr)
                lines = done.stderr.splitlines()
                self.assertEqual(len([line for line in lines if line.startswith("error: ")]), 1, done.stderr)
                self.assertRegex(done.stderr, r"\nerror: out of memory in step 1: [\d.]+ [kM]B was requested")
                self.assertRegex(lines[-3], r"^The run needs about .*( of the .* that it may use|, and it may use .*): weights .* activations ")
                self.assertRegex(lines[-2], r"^What would fit: training\.batch_size: \d+ and training\.gradient_accumulation_steps: \d+, the "
                                            r"same effective batch \(about .*B\)")
                self.assertEqual(lines[-1], "Nothing had been saved: the run begins anew")
                done = self.train({"training.max_steps": 1, **self.settings_named_by(done, 0)}, limit=limit)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_saved_run_is_intact_and_resumes_with_a_setting_that_is_named(self):
        done = self.train({"training.max_steps": 1})
        self.assertEqual(done.returncode, 0, done.stderr)
        checkpoint = (self.run_folder / "ckpt.pt").read_bytes()
        limit = self.a_limit_for_half_of_the_run(resource.RLIMIT_DATA)
        done = self.train({"training.max_steps": 2}, limit=limit)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("error: out of memory in step 2: ", done.stderr)
        self.assertIn(f"\nStep 1 is saved in {self.run_folder}/ckpt.pt: the same command with such a setting resumes", done.stderr)
        self.assertEqual((self.run_folder / "ckpt.pt").read_bytes(), checkpoint)
        done = self.train({"training.max_steps": 2, **self.settings_named_by(done, 0)}, limit=limit)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("after step 1 of 2", done.stderr)


if __name__ == "__main__":
    unittest.main()
