"""What a first user meets: gpt-train with a text and nothing else."""

import pathlib
import tempfile
import unittest

import programs


class FirstRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        cls.text = programs.write_text(cls.root)  # some 10 KB

    def train(self, *words, check_code=0):
        return programs.run("gpt-train", "--data", self.text, "--device", "cpu", *words, cwd=self.root, check_code=check_code)

    def config(self, *words) -> dict:
        lines = [line.split("#")[0].strip() for line in self.train(*words, "--print-config").stdout.splitlines()]
        return dict(line.split(": ") for line in lines if ": " in line)

    def test_sizes_suit_the_text(self):
        config = self.config()
        self.assertEqual(config["preset"], "auto")
        self.assertEqual(config["n_embd"], "64")
        self.assertLessEqual(int(config["max_steps"]), 300)
        self.assertEqual(self.config("--max_steps", "7")["max_steps"], "7")
        self.assertEqual(self.config("--n_layer", "3")["n_embd"], "384")

    def test_the_choice_is_said_and_stays_when_the_run_goes_on(self):
        run = self.root / "run"
        first = self.train("--output_dir", run, "--max_steps", 2)
        self.assertIn("model.preset: auto chose 2 layers", first.stderr)
        self.assertNotIn("warning", first.stderr)
        effective = (run / "effective_config.yaml").read_text()
        self.assertIn("n_embd: 64", effective)
        # On another machine, or with a longer text before max_chars, the table would choose otherwise.
        (run / "effective_config.yaml").unlink()
        again = self.train("--output_dir", run, "--max_steps", 3, "--threads", 1)
        self.assertNotIn("auto chose", again.stderr)
        self.assertIn("after step 2", again.stderr)

    def test_a_short_first_try_is_not_the_last_word(self):
        run = self.root / "try"
        self.train("--output_dir", run, "--max_steps", 2)
        again = self.train("--output_dir", run).stderr
        self.assertIn("2 of 2 steps are done, the length that it began with; raise training.max_steps", again)
        self.assertIn("--restart", again)
        self.assertNotIn("Compiling", again)
        found = programs.checks("--data", self.text, "--device", "cpu", "--output_dir", run, "--no-probe", check_code=0)
        self.assertEqual(found["output folder"]["status"], "warn")
        self.assertIn("is finished: 2 of 2", found["output folder"]["detail"])

    def test_an_empty_text_is_all_that_is_said(self):
        empty = self.root / "empty.txt"
        empty.write_text("")
        self.assertNotIn("auto chose", programs.run("gpt-train", "--data", empty, cwd=self.root, check_code=3).stderr)

    def test_the_warm_up_of_an_epoch_is_a_part_of_it(self):
        done = self.train("--epochs", 1, "--output_dir", self.root / "one_epoch")
        self.assertNotIn("warning: learning rate", done.stderr)

    def test_settings_without_effect_are_named(self):
        done = self.train("--output_dir", self.root / "idle", "--max_steps", 1, "--num_workers", 3, "--compile_mode", "max-autotune")
        self.assertIn("No effect here: data.num_workers", done.stderr)
        self.assertIn("compile_mode max-autotune is default on a CPU", done.stderr)


if __name__ == "__main__":
    unittest.main()
