"""gpt-diagnose as a user meets it: what it prints, and the status it leaves."""

import json
import os
import pathlib
import shutil
import tempfile
import unittest

from programs import TINY, flags, run, train, write_text

MACHINE_CHECKS = {"LibTorch", "CPU", "CPU instructions", "CPU flash attention", "memory", "CUDA"}
CONFIG_CHECKS = {"configuration", "threads", "device", "precision", "dataset", "tokens", "overlap", "batch", "length", "learning rate",
                 "validation", "workers", "parameters", "vocabulary", "attention", "memory of the run", "compute",
                 "disk speed", "disk space"}


def diagnose(*words, check_code: int = None) -> dict:
    """name -> check, from --json."""
    report = json.loads(run("gpt-diagnose", "--json", *words, check_code=check_code).stdout)
    statuses = [check["status"] for check in report["checks"]]
    assert report["summary"] == {status: statuses.count(status) for status in ("pass", "warn", "fail")}, report
    return {check["name"]: check for check in report["checks"]}


class Diagnose(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpt-diagnose-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.text = write_text(self.folder)

    def config(self, text):
        path = self.folder / "c.yaml"
        path.write_text(text)
        return path

    def good_config(self):
        return self.config(f"device: cpu\noutput_dir: {self.folder}/run\ndata:\n  text: {self.text}\n"
                           "model: {n_layer: 2, n_head: 2, n_embd: 32, block_size: 16, dropout: 0}\n"
                           "training: {batch_size: 4, max_steps: 100, eval_interval: 20}\n")

    def test_the_machine_alone(self):
        checks = diagnose()
        self.assertLessEqual(MACHINE_CHECKS, set(checks))
        self.assertFalse(CONFIG_CHECKS & set(checks))

    def test_a_good_configuration_passes(self):
        checks = diagnose("--config", self.good_config(), check_code=0)
        self.assertLessEqual(MACHINE_CHECKS | CONFIG_CHECKS, set(checks))
        self.assertEqual(checks["configuration"]["status"], "pass")
        self.assertIn("training and", checks["dataset"]["detail"])
        self.assertFalse((self.folder / "run").exists(), "a diagnosis must leave no trace")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["c.yaml", "text.txt"])

    def test_every_finding_that_is_no_pass_has_a_fix(self):
        checks = diagnose("--config", self.good_config(), "--learning-rate", "0.5", check_code=0)
        self.assertEqual(checks["learning rate"]["status"], "warn")
        for check in checks.values():
            self.assertEqual(check["fix"] == "", check["status"] == "pass", check)

    def test_the_table_has_one_line_a_check_and_no_colours_in_a_pipe(self):
        config = self.good_config()
        names = diagnose("--config", config)
        table = run("gpt-diagnose", "--config", config, check_code=0).stdout
        self.assertNotIn("\033", table)
        rows = table.split("\n\n")[0].splitlines()
        self.assertEqual(len(rows), len(names))
        for row in rows:
            self.assertRegex(row, r"^(pass|warn|fail)  \S")

    def test_flags_alone_are_a_configuration(self):
        options = {**TINY, "data.text": self.text, "output_dir": self.folder / "run"}
        checks = diagnose(*flags(options), check_code=0)
        self.assertIn("dataset", checks)

    def test_a_typo_is_one_line_and_exit_2(self):
        path = self.config("model:\n  n_heds: 4\n")
        done = run("gpt-diagnose", "--config", path, "--json", check_code=2)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn("c.yaml:2:3", done.stderr)
        self.assertIn("n_head", done.stderr)

    def test_missing_data_fails(self):
        self.text.unlink()
        checks = diagnose("--config", self.good_config(), check_code=1)
        self.assertEqual(checks["dataset"]["status"], "fail")
        self.assertIn("text.txt", checks["dataset"]["detail"])
        self.assertEqual(checks["model"]["status"], "warn", "what could not be checked says so")

    def test_no_data_at_all_fails(self):
        path = self.config("device: cpu\n")
        checks = diagnose("--config", path, check_code=1)
        self.assertEqual(checks["dataset"]["status"], "fail")

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "a GPU is there")
    def test_a_gpu_asked_for_where_there_is_none_fails(self):
        checks = diagnose("--config", self.good_config(), "--device", "cuda", check_code=1)
        self.assertEqual(checks["device"]["status"], "fail")
        self.assertIn("device: auto", checks["device"]["fix"])
        self.assertEqual(checks["dataset"]["status"], "pass", "the rest is checked all the same")

    def test_a_run_that_does_not_fit_in_memory_fails_with_a_batch_that_does(self):
        checks = diagnose("--config", self.good_config(), "--block_size", 512, "--n_embd", 512, "--batch_size", 1000000,
                          check_code=1)
        self.assertEqual(checks["memory of the run"]["status"], "fail")
        self.assertIn("training.batch_size: ", checks["memory of the run"]["fix"])

    def test_a_checkpoint_is_verified(self):
        train(self.folder / "run", self.text, training__max_steps=2)
        checks = diagnose("--checkpoint", self.folder / "run", check_code=0)
        self.assertIn("step 2", checks["checkpoint"]["detail"])
        path = self.folder / "run" / "ckpt.pt"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        checks = diagnose("--checkpoint", path, check_code=1)
        self.assertEqual(checks["checkpoint"]["status"], "fail")


if __name__ == "__main__":
    unittest.main()
