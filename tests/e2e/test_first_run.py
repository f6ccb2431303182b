"""What a first user meets: gpt-train with a text and nothing else."""

import pathlib
import subprocess
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
        self.assertLessEqual(int(config["max_steps"]), 600)
        self.assertEqual(self.config("--max_steps", "7")["max_steps"], "7")
        self.assertEqual(self.config("--n_layer", "3")["n_embd"], "384")

    def test_the_choice_is_said_and_stays_when_the_run_goes_on(self):
        run = self.root / "run"
        first = self.train("--output_dir", run, "--max_steps", 2)
        self.assertRegex(first.stderr, "model.preset: auto chose 2 layers, .* optimizer muon, learning_rate 0.004, lr_schedule wsd, for ")
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

    @programs.long
    def test_on_a_small_text_the_last_loss_is_nearly_the_least(self):
        text, run = self.root / "small.txt", self.root / "small"
        text.write_bytes((programs.SOURCE / "data" / "shakespeare.txt").read_bytes()[:20_000])
        done = programs.run("gpt-train", "--data", text, "--device", "cpu", "--threads", 1, "--output_dir", run, check_code=0)
        self.assertNotIn("memorize", done.stderr)
        evaluations = [record for record in programs.metrics(run) if "val_loss" in record]
        best = min(evaluations, key=lambda record: record["val_loss"])
        allowed = max(0.01 * best["val_loss"], 2 * best.get("val_loss_error", 0))
        self.assertLessEqual(evaluations[-1]["val_loss"] - best["val_loss"], allowed)
        self.assertLess(best["val_loss"], 2.6)  # a text of letters drawn by their frequency has 3.1
        better = run if best is evaluations[-1] else run / "ckpt_best.pt"
        self.assertTrue(done.stderr.endswith(f"Next: gpt-generate --checkpoint {better}\n"), done.stderr)

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


class AFolderOfTexts(unittest.TestCase):
    """cd mytexts; gpt-train --data .: the run lies among the texts that it is trained on."""

    SMALL = ["--n_layer", 1, "--n_head", 2, "--n_embd", 16, "--block_size", 16, "--batch_size", 2, "--log_interval", 1,
             "--device", "cpu", "--threads", 1]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.text = programs.write_text(self.root)
        (self.root / "sub").mkdir()
        (self.root / "sub/more.txt").write_text("the lazy dog sleeps.\n" * 50)
        (self.root / ".notes").write_text("ÄÖÜ")

    def command(self, *words):
        return ["--data", ".", *self.SMALL, *words]

    def train(self, *words, check_code=0):
        return programs.run("gpt-train", *self.command(*words), cwd=self.root, check_code=check_code).stderr

    def train_until_stopped(self, line_wanted):
        process = subprocess.Popen(programs.command("gpt-train", *self.command("--max_steps", 1_000_000)), cwd=self.root,
                                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        log = ""
        for line in process.stderr:
            log += line
            if line_wanted in line:
                process.terminate()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=programs.HANGS), 143, log)
        return log

    def test_is_trained_on_stopped_resumed_and_sampled_from(self):
        self.assertIn("1 hidden file or folder", self.train_until_stopped(" 3/1000000 |"))
        resumed = self.train_until_stopped("Resuming from")
        self.assertIn("Left out: ./models (runs), 1 hidden file or folder", resumed)
        self.assertRegex(resumed, "after step [0-9]+ of")
        sample = programs.run("gpt-generate", "-n", 5, "--device", "cpu", cwd=self.root, check_code=0)
        self.assertTrue(sample.stdout)

        listed = programs.run("gpt-prepare", "--input", ".", "--list", cwd=self.root, check_code=0)
        self.assertEqual([line.split()[-1] for line in listed.stdout.splitlines()[:2]], ["./sub/more.txt", "./text.txt"])
        self.assertIn("left out: ./models: runs\n", listed.stdout)
        self.assertEqual(listed.stdout.splitlines()[-1].split(";")[1], " 0 passed over, 2 left out")
        self.assertFalse(list(self.root.glob("*.bin")))

        for more in ("the dog again.\n", "ÄÖÜ\n"):  # characters that the run's tokenizer has, and others
            with self.subTest(more):
                with open(self.text, "a") as file:
                    file.write(more)
                grown = self.train("--max_steps", 1_000_000, check_code=4).splitlines()[-1]
                self.assertIn("belongs to another run: the text has changed", grown)
                self.assertIn("--restart", grown)
        self.assertIn("Starting anew", self.train("--max_steps", 1, "--restart"))


if __name__ == "__main__":
    unittest.main()
