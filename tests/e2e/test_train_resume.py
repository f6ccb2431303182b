"""Training end to end: it learns, stops on a signal with everything saved, and goes on as if it had never stopped."""

import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import programs
from checkpoints import load, same

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


class Resume(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.text = programs.write_text(cls.root)
        programs.train(cls.root / "whole", cls.text)
        cls.whole = load(cls.root / "whole/ckpt.pt")
        cls.losses = programs.losses(cls.root / "whole")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def assert_same_run(self, run):
        """Parameters, moments, random state, data position and every logged loss equal those of the run that never stopped."""
        resumed = load(run / "ckpt.pt")
        for key in ("model", "optimizer", "rng", "data", "step"):
            self.assertTrue(same(self.whole[key], resumed[key]), key)
        self.assertEqual(self.losses, programs.losses(run))

    def stop_after(self, run, step, how, **options):
        """Starts the run and sends `how` once metrics.jsonl holds `step`."""
        words = {**programs.TINY, "data.text": self.text, "output_dir": run, **options}
        process = subprocess.Popen(programs.command("gpt-train", *programs.flags(words)), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        metrics = run / "metrics.jsonl"
        while process.poll() is None and not (metrics.exists() and f'"step":{step},' in metrics.read_text()):
            time.sleep(0.001)
        process.send_signal(how)
        output, _ = process.communicate(timeout=programs.HANGS)
        return process.returncode, output

    def start_slow(self, run, **options):
        """A run that has begun, whose updates of many micro-steps leave time for signals, without a checkpoint of its own."""
        words = {**programs.TINY, "data.text": self.text, "output_dir": run, "training.max_steps": 100000, "training.eval_interval": 0, **options}
        process = subprocess.Popen(programs.command("gpt-train", *programs.flags(words)), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not ((run / "metrics.jsonl").exists() and '"step":2,' in (run / "metrics.jsonl").read_text()):
            time.sleep(0.001)
        return process

    def start_endless(self, run):
        """A run that has begun and ends by a signal only."""
        words = {**programs.TINY, "data.text": self.text, "output_dir": run, "training.max_steps": 100000}
        process = subprocess.Popen(programs.command("gpt-train", *programs.flags(words)), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (run / "metrics.jsonl").exists():
            time.sleep(0.01)
        return process

    def test_loss_falls(self):
        self.assertLess(self.losses[24][0], 0.8 * self.losses[1][0])
        self.assertIn(("val", 8), self.losses)
        self.assertIn(("val", 24), self.losses)

    def test_resume_from_a_kept_checkpoint_is_bit_for_bit(self):
        for stop in (1, 7, 23):
            with self.subTest(stop=stop):
                run = self.root / f"from{stop}"
                # A kept checkpoint at every step; then everything after `stop` is thrown away, as a crash would.
                programs.train(run, self.text, training__checkpoint_interval=1, training__keep_last=100)
                (run / f"ckpt_step_{stop:08}.pt").rename(run / "ckpt.pt")
                programs.train(run, self.text)
                self.assert_same_run(run)

    def test_signals_save_and_the_same_command_goes_on(self):
        for how, code in SIGNALS.items():
            with self.subTest(how=how.name):
                run = self.root / how.name
                returned, output = self.stop_after(run, 5, how)
                if returned == 0:  # the machine was quicker than the signal
                    self.skipTest("the run ended before the signal came")
                self.assertEqual(returned, code, output)
                self.assertIn("saved", output)
                self.assertGreaterEqual(load(run / "ckpt.pt")["step"], 5)
                programs.train(run, self.text)
                self.assert_same_run(run)

    def test_a_signal_that_comes_twice_saves_all_the_same(self):
        for how, code in SIGNALS.items():
            with self.subTest(how=how.name):
                run = self.root / f"twice_{how.name}"
                process = self.start_slow(run)
                process.send_signal(how)  # as timeout does: to the process, and to its group
                process.send_signal(how)
                errors = process.communicate(timeout=programs.HANGS)[1]
                self.assertEqual(process.returncode, code, errors)
                self.assertIn("Stopping: finishing this micro-step, then saving", errors)
                self.assertGreater(load(run / "ckpt.pt")["step"], 0)

    def test_the_report_of_a_stopped_run_says_so(self):
        run = self.root / "stopped"
        process = self.start_slow(run)
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=programs.HANGS)
        self.assertIn('"stopped":"by SIGHUP; the same command resumes it"', (run / "report.html").read_text())

    def test_a_hang_up_that_nohup_ignores_stays_ignored(self):
        run = self.root / "nohup"
        words = {**programs.TINY, "data.text": self.text, "output_dir": run, "training.max_steps": 100000}
        process = subprocess.Popen(["nohup", *programs.command("gpt-train", *programs.flags(words))], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while process.poll() is None and not (run / "metrics.jsonl").exists():
                time.sleep(0.01)
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGUSR1)  # taken after it, so that its checkpoint shows that the first had no effect
            until = time.monotonic() + programs.HANGS
            while not (run / "ckpt.pt").exists() and time.monotonic() < until:
                time.sleep(0.01)
            self.assertIsNone(process.poll())
        finally:
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=programs.HANGS), 143)

    def test_a_signal_while_the_program_starts_waits(self):
        words = {**programs.TINY, "data.text": self.text, "output_dir": self.root / "early", "training.max_steps": 2}
        process = subprocess.Popen(programs.command("gpt-train", *programs.flags(words)), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        blocked = 0
        while process.poll() is None and not blocked >> (signal.SIGUSR1 - 1) & 1:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            blocked = int(status.split("SigBlk:")[1].split()[0], 16)
        process.send_signal(signal.SIGUSR1)
        errors = process.communicate(timeout=programs.HANGS)[1]
        self.assertEqual(process.returncode, 0, errors)

    def test_a_killed_run_goes_on_from_its_last_checkpoint(self):
        run = self.root / "killed"
        self.stop_after(run, 9, signal.SIGKILL, **{"training.checkpoint_interval": 3})
        programs.train(run, self.text, training__checkpoint_interval=3)
        self.assert_same_run(run)

    def test_files_that_are_written_in_the_background_are_the_same(self):
        run, options = self.root / "background", {"training.checkpoint_interval": 3, "training.async_checkpoint": "true"}
        for step in (5, 14):
            self.stop_after(run, step, signal.SIGKILL, **options)
        output = programs.train(run, self.text, training__checkpoint_interval=3, training__async_checkpoint="true").stderr
        self.assertIn("Checkpoints are written while training goes on", output)
        self.assert_same_run(run)

    def test_a_finished_run_says_so(self):
        again = programs.train(self.root / "whole", self.text)
        self.assertIn("finished", again.stderr)
        self.assertEqual(self.losses, programs.losses(self.root / "whole"))

    def test_another_model_in_the_same_folder_is_refused(self):
        refused = programs.train(self.root / "whole", self.text, check_code=4, model__n_embd=64)
        self.assertIn("model.n_embd: 32 -> 64", refused.stderr)
        self.assertIn("--output_dir", refused.stderr)

    def test_another_text_in_the_same_folder_is_refused(self):
        other = self.root / "other.txt"
        other.write_text(self.text.read_text().replace("quick", "kciuq"))
        refused = programs.train(self.root / "whole", other, check_code=4)
        self.assertIn("output_dir", refused.stderr)

    def test_damaged_checkpoints_never_mean_starting_over(self):
        run = self.root / "damaged"
        programs.train(run, self.text, training__max_steps=8, training__eval_interval=0)
        for path in run.glob("ckpt*.pt"):
            path.write_bytes(path.read_bytes()[:1000])
        refused = programs.train(run, self.text, check_code=4)
        self.assertIn("ckpt.pt", refused.stderr)
        self.assertEqual(len(refused.stderr.strip().splitlines()), 1, refused.stderr)

    def test_one_process_at_a_time(self):
        run = self.root / "locked"
        first = self.start_endless(run)
        try:
            second = programs.train(run, self.text, check_code=4)
            self.assertIn(str(first.pid), second.stderr)
        finally:
            first.send_signal(signal.SIGTERM)
            self.assertEqual(first.wait(timeout=programs.HANGS), 143)

    def test_sigusr1_saves_and_goes_on(self):
        run = self.root / "usr1"
        returned, output = self.stop_after(run, 3, signal.SIGUSR1)
        self.assertEqual(returned, 0, output)
        self.assert_same_run(run)

    def test_sigusr1_saves_at_once(self):
        run = self.root / "usr1_saves"
        process = self.start_endless(run)
        try:
            process.send_signal(signal.SIGUSR1)
            until = time.monotonic() + programs.HANGS
            while not (run / "ckpt.pt").exists() and time.monotonic() < until:
                time.sleep(0.01)
            self.assertGreater(load(run / "ckpt.pt")["step"], 0)
        finally:
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=programs.HANGS), 143)

    def test_output_folder_holds_the_whole_run(self):
        for name in ("ckpt.pt", "ckpt_best.pt", "effective_config.yaml", "metrics.jsonl", "train.log"):
            self.assertTrue((self.root / "whole" / name).exists(), name)
        step = next(r for r in programs.metrics(self.root / "whole") if "loss" in r)
        for key in ("step", "loss", "lr", "grad_norm", "step_ms", "tokens_per_second", "peak_memory_mb"):
            self.assertIn(key, step)


if __name__ == "__main__":
    unittest.main()
