"""training.max_time: a run is as long as its time, and its learning rate follows its decisions, which another run can repeat. How exactly it ends
by the clock depends on the machine; scripts/try_max_time.sh measures that."""

import json
import math
import unittest

import programs
from checkpoints import load, same

SECONDS = 15  # more than a start takes on a busy machine
RATE, LEAST = 1e-2, 1e-4

# Updates of some 30 ms, which two processes divide.
OPTIONS = {**programs.TINY, "model.n_embd": 128, "training.batch_size": 16, "training.gradient_accumulation_steps": 4, "distributed.lanes": 2,
           "training.min_lr": LEAST, "training.max_time": f"{SECONDS} seconds", "training.eval_interval": "20 %", "training.sample_interval": "50 %"}
del OPTIONS["training.max_steps"]


class MaxTime(programs.WithText):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.done = cls.run_one("timed", "--result", cls.root / "result.json")

    @classmethod
    def run_one(cls, name, *words, check_code=0, **options):
        merged = {**OPTIONS, "data.text": cls.text, "output_dir": cls.root / name, **{key.replace("__", "."): value for key, value in options.items()}}
        return programs.run("gpt-train", *programs.flags(merged), *words, check_code=check_code)

    def decisions(self, name):
        return [json.loads(line) for line in (self.root / name / "decisions.jsonl").read_text().splitlines()]

    def test_the_run_is_done_and_says_how_long_it_was(self):
        first, *others = self.decisions("timed")
        self.assertEqual((first["step"], first["what"]), (0, "total_steps"))
        self.assertLessEqual({other["what"] for other in others}, {"total_steps"})
        run = load(self.root / "timed/ckpt.pt")
        self.assertEqual(run["schedule"]["planned_steps"], first["value"])
        self.assertEqual(run["step"], run["schedule"]["total_steps"])
        self.assertEqual(run["step"], (others or [first])[-1]["value"])
        self.assertGreater(run["schedule"]["seconds_spent"], 0)
        result = json.loads((self.root / "result.json").read_text())
        self.assertEqual((result["state"], result["step"], result["total_steps"]), ("done", run["step"], run["step"]))
        self.assertEqual(result["validation"]["step"], run["step"], "it ends with a validation")
        self.assertRegex(self.done.stderr, r"training.max_time: \S+ are left for [\d,]+ updates? of .*, with validation")

    def test_the_learning_rate_follows_the_decisions(self):
        decisions = self.decisions("timed")
        planned, total, since, position = decisions[0]["value"], decisions[0]["value"], 0, 0.0
        place = lambda step: position + (planned - position) * (step - since) / (total - since) if step < total else planned
        changes = {one["step"]: one["value"] for one in decisions[1:]}
        warmup = min(1000, planned // 10)
        for record in programs.metrics(self.root / "timed"):
            if "learning_rate" not in record:
                continue
            step = record["step"] - 1  # the update before it
            if step in changes:
                position, since, total = place(step), step, changes[step]
            at = place(step)
            share = (at - warmup) / (planned - warmup)
            rate = RATE * (at + 1) / (warmup + 1) if at < warmup else LEAST + (RATE - LEAST) * (1 + math.cos(math.pi * share)) / 2
            self.assertAlmostEqual(record["learning_rate"], rate, delta=1e-9, msg=record)

    def test_a_replay_is_the_run_itself_in_however_many_processes(self):
        for processes in (1, 2):
            name = f"replay {processes}"
            self.run_one(name, "--replay", self.root / "timed/decisions.jsonl", distributed__processes=processes)
            one, two = load(self.root / name / "ckpt.pt"), load(self.root / "timed/ckpt.pt")
            for key in ("model", "optimizer", "step", "data", "decisions"):
                self.assertTrue(same(one[key], two[key]), f"{name}: {key}")
            self.assertEqual(programs.losses(self.root / name), programs.losses(self.root / "timed"))

    def test_a_replay_needs_the_time(self):
        done = self.run_one("untimed", "--replay", self.root / "timed/decisions.jsonl", check_code=2, training__max_time="none", training__max_steps=5)
        self.assertIn("--replay: the run that decided this had a training.max_time; give this one the same", done.stderr)

    def test_a_finished_run_has_its_time_behind_it(self):
        again = self.run_one("timed")
        self.assertIn("timed is finished", again.stderr)
        self.assertIn("raise training.max_time to continue it", again.stderr)

    def test_what_limits_the_length_beside_it_counts(self):
        self.run_one("short", training__max_steps=3)
        self.assertEqual(load(self.root / "short/ckpt.pt")["step"], 3)
        self.assertEqual([one["value"] for one in self.decisions("short")], [3])

    def test_stages_are_refused(self):
        done = self.run_one("stages", data__schedule="grow", check_code=2)
        self.assertIn("how many steps fit into max_time is not known before", done.stderr)


if __name__ == "__main__":
    unittest.main()
