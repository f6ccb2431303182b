"""Decisions on the way of a run: a rollback lowers the learning rate, which is on the disk before it takes effect. Wherever a kill comes, and
however many processes compute it, the run is the same; and so is one that replays the file."""

import json
import os
import pathlib
import shutil
import signal
import tempfile
import unittest

import programs
import test_divergence as divergence
from checkpoints import load, same

# A run whose loss jumps once. Its updates have four micro-batches, which 1, 2 and 4 processes divide.
OPTIONS = {**programs.TINY, **divergence.OPTIONS, "training.on_divergence": "rollback", "training.rollback_lr_factor": 0.5,
           "training.warmup_steps": 4, "training.batch_size": 8, "training.gradient_accumulation_steps": 4, "distributed.lanes": 4}
DECIDED = {"step": divergence.NOISE_FROM + 1, "what": "learning_rate_factor", "value": 0.5}


class Decisions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.root = pathlib.Path(scratch.name)
        cls.text = programs.write_text(cls.root)
        noise, first = divergence.write_noise(cls.root, cls.text), divergence.NOISE_FROM
        cls.options = {**OPTIONS, "data.text": cls.text,
                       "data.stages": f"[{{from: 0}}, {{from: {first}, mix: {{{noise}: 1}}}}, {{from: {first + divergence.NOISE_STEPS}}}]"}
        calls = cls.root / "calls"
        cls.run_one("whole", FILES="decisions.jsonl", CALLS=calls)
        cls.calls = int.from_bytes(calls.read_bytes(), "little")  # of the file system, for decisions.jsonl

    @classmethod
    def run_one(cls, name, *words, check_code=0, options=None, **faults):
        """`faults`: see attack/failing_calls.cpp."""
        env = {"LD_PRELOAD": os.environ["GPT_FAILING_CALLS"], **{f"FAULT_{key}": str(value) for key, value in faults.items()}} if faults else {}
        merged = {**cls.options, "output_dir": cls.root / name, **(options or {})}
        return programs.run("gpt-train", *programs.flags(merged), *words, check_code=check_code, env=env)

    def file_of(self, name):
        return self.root / name / "decisions.jsonl"

    def assert_same_run(self, name, other="whole"):
        one, two = load(self.root / name / "ckpt.pt"), load(self.root / other / "ckpt.pt")
        for key in ("model", "optimizer", "rng", "spikes", "step", "skipped_steps", "data", "rollback", "decisions"):
            self.assertTrue(same(one[key], two[key]), f"{name}: {key}")
        self.assertEqual(programs.losses(self.root / name), programs.losses(self.root / other))
        self.assertEqual(self.file_of(name).read_bytes(), self.file_of(other).read_bytes())

    def test_the_file_and_the_checkpoint_say_what_was_decided(self):
        self.assertEqual([json.loads(line) for line in self.file_of("whole").read_text().splitlines()], [DECIDED])
        whole = load(self.root / "whole/ckpt.pt")
        self.assertEqual(whole["decisions"], (DECIDED,))
        self.assertEqual(whole["rollback"]["learning_rate_factor"], 0.5)

    def test_a_replay_is_the_run_itself(self):
        """It takes the decision from the file: the run alone would not lower its rate."""
        own = {"training.rollback_lr_factor": 1}
        done = self.run_one("replay", "--replay", self.file_of("whole"), options=own)
        self.assertIn(f"Replaying {self.file_of('whole')}: 1 decision to come", done.stderr)
        self.assertIn(f"step {DECIDED['step']}: the learning rate is 0.5 times the schedule's from now on, as was decided before", done.stderr)
        self.assert_same_run("replay")
        self.run_one("alone", options=own)
        self.assertFalse(same(load(self.root / "alone/ckpt.pt")["model"], load(self.root / "whole/ckpt.pt")["model"]))
        self.assertFalse(self.file_of("alone").exists())

    def kill(self, name, call, **options):
        """At this call on decisions.jsonl, before it has an effect."""
        killed = -signal.SIGKILL if options.get("distributed.processes", 1) == 1 else 6
        self.run_one(name, options=options, check_code=killed, FILES="decisions.jsonl", AT=call, KILLS=1)

    def assert_kills_change_nothing(self, calls, **options):
        for call in calls:
            with self.subTest(call=call, **options):
                name = f"killed at {call} of {options.get('distributed.processes', 1)}"
                self.kill(name, call, **options)
                self.assertFalse(self.file_of(name).exists(), "what was not decided is not there")
                self.run_one(name, options=options)
                self.assert_same_run(name)
                shutil.rmtree(self.root / name)

    def test_a_kill_while_it_is_decided_changes_nothing(self):
        """The last call gives the file its name."""
        self.assert_kills_change_nothing([self.calls])

    @programs.long
    def test_nor_does_a_kill_at_any_call_in_any_number_of_processes(self):
        self.assert_kills_change_nothing(range(1, self.calls))
        for processes in (2, 4):
            for zero in (0, 2):
                self.assert_kills_change_nothing((self.calls - 2, self.calls), **{"distributed.processes": processes, "distributed.zero": zero})

    @programs.long
    def test_any_number_of_processes_takes_it_again(self):
        """After a kill that comes when it is on the disk, and as a replay, though the run would not lower the rate by itself."""
        saved = divergence.NOISE_FROM
        for processes in (1, 2, 4):
            with self.subTest(processes=processes):
                name, options = f"of {processes}", {"distributed.processes": processes}
                self.kill(name, self.calls, **options)
                shutil.copy(self.file_of("whole"), self.file_of(name))
                options["training.rollback_lr_factor"] = 1
                done = self.run_one(name, options=options)
                self.assertIn(f"1 decision after step {saved}, of {self.file_of(name)}, will be taken again", done.stderr)
                self.assert_same_run(name)
                self.run_one(f"replay of {processes}", "--replay", self.file_of("whole"), options=options)
                self.assert_same_run(f"replay of {processes}")

    def test_who_goes_back_to_an_earlier_checkpoint_decides_anew(self):
        kept = {"training.keep_last": 20}
        self.run_one("back", options=kept)
        chosen = self.root / f"back/ckpt_step_{divergence.NOISE_FROM - 8:08}.pt"
        done = self.run_one("back", options={**kept, "training.resume_from": chosen, "training.on_divergence": "skip"})
        self.assertIn("1 decision that this run does not take moved from", done.stderr)
        self.assertEqual(self.file_of("back").read_text(), "")
        self.assertEqual(json.loads((self.root / "back/decisions.old.jsonl").read_text()), DECIDED)
        self.assertNotIn("decisions", load(self.root / "back/ckpt.pt"))

    def test_a_file_that_is_none_is_refused_in_one_line(self):
        right = json.dumps(DECIDED)
        cases = {"no JSON": "2 is no JSON object", "[]": "2 is no JSON object", '{"step": -1, "what": "learning_rate_factor", "value": 1}': "2 needs a step",
                 '{"step": 50, "what": "rate", "value": 1}': "2 needs what is decided: learning_rate_factor",
                 '{"step": 50, "what": "learning_rate_factor", "value": 0}': "2 needs a value above 0 and at most 100",
                 '{"step": 50, "what": "learning_rate_factor", "value": 1, "why": 2}': "2 has the unknown key 'why'",
                 '{"step": 3, "what": "learning_rate_factor", "value": 1}': "2 is of step 3, and a line before it of step 49",
                 right: f"2 decides learning_rate_factor of step 49 again, after {self.root}/file.jsonl:1"}
        for line, said in cases.items():
            with self.subTest(line=line):
                (self.root / "file.jsonl").write_text(f"{right}\n{line}\n")
                refused = self.run_one("refused", "--replay", self.root / "file.jsonl", check_code=2)
                self.assertIn(f"{self.root}/file.jsonl:{said}", refused.stderr)
                self.assertEqual(sum("error" in line for line in refused.stderr.splitlines()), 1, refused.stderr)
        missing = self.run_one("refused", "--replay", self.root / "missing.jsonl", check_code=2)
        self.assertIn("missing.jsonl", missing.stderr)

    def test_a_replay_that_contradicts_the_run_is_refused(self):
        (self.root / "other.jsonl").write_text(json.dumps({**DECIDED, "value": 0.25}) + "\n")
        refused = self.run_one("whole", "--replay", self.root / "other.jsonl", check_code=2)
        self.assertIn(f"{self.root}/other.jsonl:1: --replay cannot take this decision of step 49: the run has decided that "
                      "learning_rate_factor is 0.5", refused.stderr)
        (self.root / "early.jsonl").write_text(json.dumps({**DECIDED, "step": 3}) + "\n")
        refused = self.run_one("whole", "--replay", self.root / "early.jsonl", check_code=2)
        self.assertIn("the run is at step 72 already", refused.stderr)
        self.assertIn("is finished", self.run_one("whole", "--replay", self.file_of("whole")).stderr)


if __name__ == "__main__":
    unittest.main()
