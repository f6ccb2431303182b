"""What a run keeps when updates or saves fail."""

import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest
import zipfile

import programs


def values_of(checkpoint) -> dict:
    with zipfile.ZipFile(checkpoint) as archive:
        return json.loads(archive.read("archive/checkpoint.json"))["values"]


class Failures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.text = programs.write_text(self.root)
        self.run_folder = self.root / "run"

    def test_a_streak_of_skipped_updates_is_never_saved_over_a_good_state(self):
        """Weights explode at this rate, and every update from then on is skipped."""
        done = programs.train(self.run_folder, self.text, check_code=5, training__learning_rate=10, training__gradient_clip=0,
                              training__warmup_steps=0, training__max_steps=2000, training__checkpoint_interval=1, training__keep_last=3,
                              training__eval_interval=1, training__lr_schedule="constant", training__weight_decay=10,
                              training__eval_batches=1)
        self.assertIn("updates in a row had a loss or gradient that was not finite", done.stderr)
        checkpoints = sorted(self.run_folder.glob("ckpt*.pt"))
        self.assertGreaterEqual(len(checkpoints), 3)
        for checkpoint in checkpoints:
            self.assertEqual(values_of(checkpoint)["consecutive_skipped_steps"], 0, checkpoint.name)

    def test_a_best_checkpoint_that_could_not_be_written_is_made_up_for(self):
        programs.train(self.run_folder, self.text, training__max_steps=4, training__eval_interval=0)
        in_the_way = self.run_folder / "ckpt_best.pt"
        (in_the_way / "file").mkdir(parents=True)
        first = programs.train(self.run_folder, self.text, training__max_steps=8)
        self.assertIn("ckpt_best.pt: rename failed", first.stderr)
        self.assertNotIn("Best val loss", first.stderr)
        self.assertIsNone(values_of(self.run_folder / "ckpt.pt")["best_val_loss"])
        (in_the_way / "file").rmdir()
        in_the_way.rmdir()
        second = programs.train(self.run_folder, self.text, training__max_steps=16)
        self.assertIn("best so far", second.stderr)
        self.assertIn("Best val loss", second.stderr)
        self.assertEqual(values_of(in_the_way)["step"], 16)

    def test_a_best_checkpoint_of_the_last_step_is_tried_again(self):
        """No later evaluation could make up for it."""
        options = {**programs.TINY, "training.max_steps": 4, "data.text": self.text, "output_dir": self.run_folder}
        for call in range(1, 8):
            with self.subTest(call):
                shutil.rmtree(self.run_folder, ignore_errors=True)
                done = programs.run("gpt-train", *programs.flags(options), check_code=0, env={
                    "LD_PRELOAD": os.environ["GPT_FAILING_CALLS"], "FAULT_FILES": "ckpt_best.pt", "FAULT_AT": str(call)})
                self.assertIn("Best val loss", done.stderr)
                self.assertIsNotNone(values_of(self.run_folder / "ckpt.pt")["best_val_loss"])
                self.assertEqual(values_of(self.run_folder / "ckpt_best.pt")["step"], 4)

    def test_output_that_nobody_reads_stops_neither_training_nor_a_signal(self):
        """Both streams are a pipe that is soon full, as after Ctrl-S or with a hung ssh."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)  # some 40 lines
        options = {**programs.TINY, "training.max_steps": 1_000_000, "training.eval_interval": 0, "data.text": self.text,
                   "output_dir": self.run_folder}
        process = subprocess.Popen(programs.command("gpt-train", *programs.flags(options)), stdout=writer, stderr=writer)
        os.close(writer)
        log = self.run_folder / "train.log"
        while not (log.exists() and "step     300/" in log.read_text()):
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        process.terminate()
        self.assertEqual(process.wait(timeout=programs.HANGS), 143)
        self.assertGreaterEqual(values_of(self.run_folder / "ckpt.pt")["step"], 300)

    def test_a_line_of_metrics_that_is_none_does_not_stop_a_resume(self):
        programs.train(self.run_folder, self.text, training__max_steps=4)
        with open(self.run_folder / "metrics.jsonl", "a") as metrics:
            metrics.write('{"step": "four"}\n[1]\n{"loss": 3}\n{"step": 5, "lo')
        programs.train(self.run_folder, self.text, training__max_steps=6)
        self.assertEqual([line["step"] for line in programs.metrics(self.run_folder) if "loss" in line], [1, 2, 3, 4, 5, 6])
        self.assertEqual(len((self.run_folder / "metrics.old.jsonl").read_text().splitlines()), 4)

    def prepare(self, name, text, *words):
        programs.run("gpt-prepare", "--input", text, "--tokenizer", "byte", "--output", self.root / name, *words, check_code=0)
        return next((self.root / name).glob("*.bin"))

    def start_on_tokens(self, **more):
        """A long run on a bin, after its first steps."""
        self.bin = self.prepare("data", self.text, *(["--validation-fraction", "0"] if more else []))
        options = {**programs.TINY, "training.max_steps": 1_000_000, "data.bin": self.bin, "output_dir": self.run_folder, **more}
        self.command = programs.command("gpt-train", *programs.flags(options))
        process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if " 10/1000000 |" in line:
                return process
        self.fail("the run ended")

    def expect_stop(self, process):
        _, log = process.communicate(timeout=programs.HANGS)
        self.assertEqual(process.returncode, 3, log)
        self.assertIn(f"error: {self.bin} was changed while it was in use", log.splitlines()[-1])
        return values_of(self.run_folder / "ckpt.pt")["step"]

    def test_a_bin_that_is_truncated_stops_the_run_with_its_state_saved(self):
        process = self.start_on_tokens()
        content = self.bin.read_bytes()
        times = self.bin.stat()
        os.truncate(self.bin, 4096)
        step = self.expect_stop(process)
        self.assertGreaterEqual(step, 10)
        self.bin.write_bytes(content)
        os.utime(self.bin, ns=(times.st_atime_ns, times.st_mtime_ns))
        process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if f"after step {step} of" in line:
                process.terminate()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=programs.HANGS), 143)

    def test_a_validation_bin_that_is_truncated_stops_the_run_with_its_state_saved(self):
        other = self.root / "other.txt"
        other.write_text(self.text.read_text()[::-1])
        validation = self.prepare("validation", other, "--validation-fraction", "0")
        process = self.start_on_tokens(**{"data.validation_bin": validation})
        os.truncate(validation, 4096)
        self.bin = validation
        self.assertGreaterEqual(self.expect_stop(process), 8)

    def test_a_bin_that_is_touched_does_not(self):
        """Its content is what it was. An epoch of the tiny text is over in a moment, and the file is looked at then."""
        process = self.start_on_tokens()
        os.utime(self.bin)
        epochs = 0
        for line in process.stderr:
            epochs += "mean loss" in line
            if epochs == 2:
                process.terminate()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=programs.HANGS), 143)

    def test_a_bin_that_is_overwritten_stops_the_run(self):
        for change in (b"\xff\xff", b"\x07\x00"):  # ids that are none, and ids that could be
            with self.subTest(change):
                process = self.start_on_tokens()
                with open(self.bin, "r+b") as file:
                    file.write(change * (self.bin.stat().st_size // 2))
                self.expect_stop(process)
                shutil.rmtree(self.run_folder)
                shutil.rmtree(self.root / "data")


if __name__ == "__main__":
    unittest.main()
