"""Several processes compute one run: the same weights as one, one folder, and what happens when one of them is lost."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

import torch

import programs
import ranks

# Twelve sequences an update, in micro-batches of three, which 1, 2 and 4 processes divide.
FOUR_LANES = {"distributed.lanes": 4, "training.batch_size": 3, "training.gradient_accumulation_steps": 4}


class TestProcesses(ranks.DividedRun):
    RUN = FOUR_LANES

    def begin(self, name, **options):
        merged = {**self.RUN, "training.max_steps": 100000, "training.eval_interval": 0, "training.checkpoint_interval": 20, **options}
        return ranks.begin(self, self.folder / name, self.text, **merged)

    def await_checkpoint(self, name, run):
        return ranks.await_checkpoint(self, self.folder / name, run)

    def test_any_number_of_processes_computes_the_same_run(self):
        self.train("one")
        for processes, zero in programs.cases((2, 0), (4, 0), (2, 1), (4, 1), (2, 2), (4, 2), (2, 3), (4, 3),
                                              few=((2, 0), (2, 2), (4, 3))):
            name = f"of {processes}, zero {zero}"
            done = self.train(name, **{"distributed.processes": processes, "distributed.zero": zero})
            self.assertIn(f"{processes} processes, started by gpt-train, 1 thread each", done.stderr)
            self.assertEqual("each has a part of the optimizer's state" in done.stderr, zero > 0)
            self.assertEqual("optimizer's state and of the gradients" in done.stderr, zero == 2)
            self.assertEqual("of the gradients and of the weights" in done.stderr, zero == 3)
            self.assertEqual(programs.losses(self.folder / "one"), programs.losses(self.folder / name))
            self.assert_same_weights("one", name)

    def test_muon_s_matrices_are_divided_whole(self):
        muon = {"training.optimizer": "normuon"}
        self.train("one", **muon)
        for processes, zero in programs.cases((2, 0), (2, 1), (4, 1), (4, 2), few=((4, 1),)):
            name = f"of {processes}, zero {zero}"
            self.train(name, **muon, **{"distributed.processes": processes, "distributed.zero": zero})
            self.assertEqual(programs.losses(self.folder / "one"), programs.losses(self.folder / name))
            self.assert_same_weights("one", name)

    def test_the_first_process_alone_writes_and_speaks(self):
        one = self.train("one").stderr
        two = self.train("two", **{"distributed.processes": 2}).stderr
        steps = [line for line in two.splitlines() if line.startswith("step ")]
        logged = [record for record in programs.metrics(self.folder / "two") if "step_ms" in record]
        self.assertTrue(all(len(record["wait_ms"]) == 2 for record in logged), logged)
        self.assertFalse(any("wait_ms" in record for record in programs.metrics(self.folder / "one")))
        self.assertEqual(len(steps), len([line for line in one.splitlines() if line.startswith("step ")]))
        files = lambda name: sorted(path.name for path in (self.folder / name).iterdir())
        self.assertEqual(files("one"), files("two"))

    @programs.long
    def test_a_run_goes_on_with_another_number_of_processes(self):
        schedule = {"training.lr_schedule": "constant", "training.warmup_steps": 2}
        self.train("straight", **schedule)
        for zero in (1, 3):
            changed = f"zero {zero}"
            self.train(changed, training__max_steps=10, **schedule, **{"distributed.processes": 4, "distributed.zero": zero})
            self.train(changed, training__max_steps=17, **schedule, **{"distributed.processes": 2, "distributed.zero": 3 - zero // 2})
            again = self.train(changed, training__max_steps=24, **schedule, **{"distributed.processes": 4 // zero})
            self.assertIn("Resuming from", again.stderr)
            self.assert_same_weights("straight", changed)

    @programs.long
    def test_divided_weights_are_validated_and_sampled(self):
        """Of three processes the first one alone writes samples, for which all bring the weights together."""
        options = {"training.sample_interval": 8, "training.eval_interval": 8, "training.sample_tokens": 20,
                   "training.eval_tasks": f"piqa:{ranks.TASK}", "training.eval_task_limit": 4, "model.block_size": 128, "data.tokenizer": "byte",
                   "distributed.processes": 3, "distributed.lanes": 1, "training.gradient_accumulation_steps": 3}
        self.train("whole", **options, **{"distributed.zero": 2})
        self.train("divided", **options, **{"distributed.zero": 3})
        samples = lambda name: {file.name: file.read_text() for file in (self.folder / name / "samples").iterdir()}
        self.assertEqual(len(samples("whole")), 3)
        self.assertEqual(samples("divided"), samples("whole"))
        evaluations = lambda name: [{key: value for key, value in line.items() if key in ("step", "val_loss", "task", "metrics")}
                                    for line in programs.metrics(self.folder / name) if "val_loss" in line or "task" in line]
        self.assertEqual(len(evaluations("whole")), 6)
        self.assertEqual(evaluations("divided"), evaluations("whole"))
        self.assert_same_weights("divided", "whole")

    def test_batches_are_divided_where_there_is_one_for_all(self):
        options = {"training.batch_size": 8, "training.gradient_accumulation_steps": 1, "distributed.lanes": 1}
        one = self.train("one", **options).stderr
        two = self.train("two", **options, **{"distributed.processes": 2}).stderr
        line = lambda text: re.search(r"8 sequences = \d+ tokens a step", text).group()
        self.assertEqual(line(one), line(two))
        self.assertIn("batch_size: 4", (self.folder / "two" / "effective_config.yaml").read_text())
        loss, other = (programs.losses(self.folder / name)[1][0] for name in ("one", "two"))
        self.assertAlmostEqual(loss, other, delta=1e-6 * loss)  # later ones may grow apart by roundings

    def test_more_processes_than_sequences_are_refused(self):
        done = self.train("x", check_code=2, **{"distributed.processes": 16, "distributed.lanes": 1})
        self.assertIn("an update has 12 sequences, too few for 16 processes", done.stderr)

    def test_fewer_lanes_than_micro_batches_are_refused_with_divided_gradients(self):
        options = {"distributed.processes": 2, "distributed.lanes": 2, "distributed.zero": 2}
        done = self.train("x", check_code=2, **options)
        self.assertIn("each of an update's 4 micro-batches has a lane of its own, and lanes is 2", done.stderr)

    def test_autocast_is_refused_with_divided_weights(self):
        bits = {"training.use_amp": "true", "training.dtype": "bfloat16", "training.amp_mode": "autocast"}
        done = self.train("x", check_code=2, **bits, **{"distributed.processes": 2, "distributed.zero": 3})
        self.assertIn("zero 3 does not go with autocast, which keeps a copy of all weights in 16 bits; set",
                      done.stderr)

    def test_ctrl_c_to_one_process_stops_all_and_saves(self):
        """Of two, after which four go on: to the weights of one that nobody has stopped."""
        steady = {"training.lr_schedule": "constant", "training.warmup_steps": 2}
        for zero in programs.cases(0, 1, 2, 3, few=(3,)):
            name = f"zero {zero}"
            processes = lambda count: {"distributed.processes": count, "distributed.zero": zero if count > 1 else 0}
            self.stop_and_go_on(name, 1, goes_on=processes(4), undisturbed=processes(1), **steady, **processes(2))
            self.assert_same_weights(f"undisturbed {name}", name)

    def await_another_checkpoint(self, name, run):
        checkpoint = self.folder / name / "ckpt.pt"
        before, deadline = checkpoint.stat().st_mtime_ns, time.monotonic() + programs.HANGS
        while checkpoint.stat().st_mtime_ns == before:
            self.assertIsNone(run.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def await_next_checkpoint(self, name, run):
        self.await_another_checkpoint(name, run)
        checkpoint = self.folder / name / "ckpt.pt"
        programs.run("gpt-diagnose", "--checkpoint", checkpoint, "--no-probe", check_code=0)

    def test_a_checkpoint_that_the_clock_asks_for_has_all_parts(self):
        run = self.begin("run", distributed__processes=2, distributed__zero=1, training__log_interval=10**6,
                         training__checkpoint_interval="1 seconds")
        self.await_checkpoint("run", run)
        for _ in range(2):
            self.await_next_checkpoint("run", run)

    def test_a_checkpoint_that_a_signal_asks_for_has_all_parts(self):
        run = self.begin("run", distributed__processes=2, distributed__zero=1, training__log_interval=10**6,
                         training__checkpoint_interval="10 minutes")
        deadline = time.monotonic() + programs.HANGS
        while not (self.folder / "run" / "metrics.jsonl").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        pids = ranks.by_rank(run)
        os.kill(pids[0], signal.SIGUSR1)
        self.await_checkpoint("run", run)
        os.kill(pids[1], signal.SIGUSR1)
        self.await_next_checkpoint("run", run)
        run.terminate()
        _, errors = run.communicate(timeout=programs.HANGS)
        self.assertEqual(run.returncode, 143, errors)
        self.assertEqual(errors.count("SIGUSR1 at step"), 2, errors)

    def test_a_killed_process_ends_the_run_with_its_name(self):
        for zero in (0, 1):
            with self.subTest(zero=zero):
                self.kill_one(f"zero {zero}", distributed__zero=zero)

    def kill_one(self, name, **options):
        run = self.begin(name, distributed__processes=2, **options)
        pids = self.await_checkpoint(name, run)
        self.await_another_checkpoint(name, run)  # a file is there a moment before the run counts it as saved
        os.kill(pids[1], signal.SIGKILL)
        _, errors = run.communicate(timeout=programs.HANGS)
        self.assertEqual(run.returncode, 6, errors)
        self.assertIn(f"rank 1 (PID {pids[1]}) was killed by SIGKILL", errors)
        self.assertRegex(errors, rf"error: rank 1 \(PID {pids[1]} on .*\) has gone: its connection closed; the same "
                                 r"command resumes after step \d+, which is saved in ")
        self.assertEqual(len([line for line in errors.splitlines() if line.startswith("error")]), 2, errors)

    def test_a_stopped_process_is_noticed_by_its_silence(self):
        run = self.begin("run", distributed__processes=2, distributed__timeout=2)
        pids = self.await_checkpoint("run", run)
        os.kill(pids[1], signal.SIGSTOP)
        _, errors = run.communicate(timeout=programs.HANGS)
        self.assertEqual(run.returncode, 6, errors)
        self.assertRegex(errors, r"rank 1 \(PID \d+ on .*\) has not been heard of for \d+ s")

    def test_the_death_of_the_first_process_ends_the_others(self):
        run = self.begin("run", distributed__processes=3, distributed__lanes=1)
        pids = self.await_checkpoint("run", run)
        os.kill(pids[0], signal.SIGKILL)
        _, errors = run.communicate(timeout=programs.HANGS)
        self.assertEqual(run.returncode, 6, errors)
        for pid in pids.values():
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())

    def test_the_death_of_the_launcher_ends_all(self):
        run = self.begin("run", distributed__processes=2)
        pids = self.await_checkpoint("run", run)
        run.kill()
        run.wait()
        deadline = time.monotonic() + programs.HANGS
        while any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids.values()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    @programs.long
    def test_four_lose_one_and_two_go_on_to_the_same_end(self):
        self.train("undisturbed", training__max_steps=400, training__eval_interval=0, training__log_interval=100)
        run = self.begin("run", distributed__processes=4, distributed__restarts=1, distributed__min_processes=2,
                         training__max_steps=400, training__log_interval=100)
        pids = self.await_checkpoint("run", run)
        os.kill(pids[3], signal.SIGKILL)
        _, errors = run.communicate(timeout=programs.HANGS)
        self.assertEqual(run.returncode, 0, errors)
        self.assertIn("starting again from the last checkpoint with 2 processes (restart 1 of 1)", errors)
        self.assert_same_weights("undisturbed", "run")

    def test_where_one_ends_before_all_have_met_the_others_are_not_kept_waiting(self):
        run = self.begin("run", distributed__processes=3, distributed__lanes=1)
        deadline = time.monotonic() + programs.HANGS
        while len(children := sorted(ranks.children_of(run.pid))) < 3:
            self.assertLess(time.monotonic(), deadline)
        os.kill(children[2], signal.SIGKILL)  # long before it has read its data
        _, errors = run.communicate(timeout=programs.HANGS)
        self.assertEqual(run.returncode, 6, errors)
        self.assertIn("rank 2 ended before all had met, so the others are ended too", errors)
        for pid in children:
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())

    def test_an_error_of_one_process_is_the_run_s(self):
        done = self.train("x", check_code=3, **{"distributed.processes": 2, "data.text": self.folder / "missing.txt"})
        self.assertIn("missing.txt", done.stderr)
        self.assertEqual(done.stderr.count("missing.txt"), 1, done.stderr)

    def options(self, name):
        return {**programs.TINY, **FOUR_LANES, "data.text": self.text, "output_dir": self.folder / name}

    def assert_starts_two(self, launcher, *messages):
        """The command `launcher` starts two processes, which say so and compute the run of one."""
        words = [*launcher, *programs.command("gpt-train", *programs.flags(self.options("run")))]
        done = subprocess.run(words, text=True, capture_output=True, timeout=programs.HANGS)
        self.assertEqual(done.returncode, 0, done.stderr)
        for message in messages:
            self.assertIn(message, done.stderr)
        self.train("one")
        self.assert_same_weights("one", "run")

    def test_torchrun_starts_and_the_processes_meet_at_its_store(self):
        self.assert_starts_two([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python"],
                               "2 processes, started by torchrun, 1 thread each")

    @unittest.skipUnless(shutil.which("mpirun"), "Open MPI is not installed")
    def test_mpirun_starts_the_processes(self):
        self.assert_starts_two(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"],
                               "2 processes, started by Open MPI's mpirun, 1 thread each; they meet in a file of output_dir",
                               "it passes SIGUSR1 on, which saves; to stop with everything saved, send SIGTERM to a gpt-train process: kill ")

    def run_as_ranks(self, variables, options):
        """Two processes, with the variables and options of their rank; their exit statuses and what they said."""
        both = [subprocess.Popen(programs.command("gpt-train", *programs.flags(options(rank))), stderr=subprocess.PIPE,
                                 text=True, env={**os.environ, **variables(str(rank))}) for rank in range(2)]
        outcomes = [rank.communicate(timeout=programs.HANGS)[1] for rank in both]
        return [rank.returncode for rank in both], outcomes

    def test_processes_with_the_variables_of_mpirun_meet_in_a_file(self):
        statuses, outcomes = self.run_as_ranks(
            lambda rank: {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2",
                          "OMPI_COMM_WORLD_LOCAL_RANK": rank, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            lambda rank: self.options("run"))
        self.assertEqual(statuses, [0, 0], outcomes)
        self.assertIn("2 processes, started by Open MPI's mpirun, 1 thread each; they meet in a file of output_dir", outcomes[0])
        self.assertEqual(outcomes[1], "")
        self.assertEqual(list((self.folder / "run").glob(".ranks*")), [])
        self.train("one")
        self.assert_same_weights("one", "run")

    def failing_run(self, name, **faults):
        """Two processes that write together, the second one's with faults."""
        rank_1 = {"LD_PRELOAD": os.environ["GPT_FAILING_CALLS"], **{f"FAULT_{key}": value for key, value in faults.items()}}
        return self.run_as_ranks(
            lambda rank: {"PMI_RANK": rank, "PMI_SIZE": "2", **(rank_1 if rank == "1" else {})},
            lambda rank: {**self.options(name), "distributed.zero": 1, "training.checkpoint_interval": 10})

    def test_what_one_process_cannot_write_none_has_written(self):
        one = "rank 1: cannot write .*ckpt.pt: write failed: Input/output error"
        statuses, outcomes = self.failing_run("once", FILES="ckpt.pt.tmp", AT="2")
        self.assertEqual(statuses, [0, 0], outcomes)
        self.assertRegex(outcomes[0], one + "; training continues, and the next checkpoint tries again")
        self.assertEqual(outcomes[1], "")
        self.train("undisturbed")
        self.assert_same_weights("undisturbed", "once")
        statuses, outcomes = self.failing_run("always", FILES=".pt.tmp", AT="2", LASTS="1")
        self.assertEqual(statuses[0], 8, outcomes)
        self.assertRegex(outcomes[0], "error: " + one.replace("write failed", "(write|open) failed"))
        self.assertEqual(outcomes[1], "")
        self.assertFalse((self.folder / "always" / "ckpt.pt").exists())
        self.assertEqual(list((self.folder / "always").glob(".*tmp*")), [])

    def test_processes_without_a_common_folder_save_through_the_first(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        for folders in (("shared", "shared"), ("first", "second")):
            statuses, outcomes = self.run_as_ranks(
                lambda rank: {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2",
                              "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
                lambda rank: {**self.options(folders[int(rank)]), "distributed.zero": 1})
            self.assertEqual(statuses, [0, 0], outcomes)
            self.assertEqual("do not see the same output_dir" in outcomes[0], folders[0] == "first", outcomes)
        one, other = (torch.load(self.folder / name / "ckpt.pt", weights_only=True) for name in ("shared", "first"))
        self.assertEqual(list((self.folder / "second").glob("ckpt*")), [])
        self.assert_same_weights("shared", "first")
        for name, state in one["optimizer"]["state"].items():
            for slot, values in state.items():
                self.assertTrue(torch.equal(values, other["optimizer"]["state"][name][slot]), f"{slot} of {name}")

    def test_another_configuration_is_refused_by_name(self):
        statuses, outcomes = self.run_as_ranks(
            lambda rank: {"PMI_RANK": rank, "PMI_SIZE": "2"},
            lambda rank: {**self.options("run"), "training.learning_rate": 1e-2 * (1 + rank)})
        self.assertEqual(statuses, [2, 2], outcomes)
        for said in outcomes:
            self.assertIn("rank 1 has another configuration than rank 0 (training.learning_rate: 0.02 instead of 0.01)", said)

    def test_a_signal_ends_a_process_that_waits_for_the_first_one(self):
        with socket.create_server(("127.0.0.1", 0)) as nobody:  # takes connections and never answers
            variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(nobody.getsockname()[1])}
            for number in (signal.SIGTERM, signal.SIGINT):
                with subprocess.Popen(programs.command("gpt-train", *programs.flags(self.options("run"))), text=True,
                                      stderr=subprocess.PIPE, env={**os.environ, **variables}) as run:
                    connections = [nobody.accept(), nobody.accept()]  # to see whether anybody is there, and c10d's
                    run.send_signal(number)
                    _, errors = run.communicate(timeout=programs.HANGS)
                    self.assertEqual(run.returncode, 128 + number, errors)
                    self.assertEqual(errors, "")
                    for connection, _ in connections:
                        connection.close()

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_a_missing_loopback_is_said(self):
        done = subprocess.run(["unshare", "-n", *programs.command("gpt-train", *programs.flags({**self.options("run"), "distributed.processes": 2}))],
                              text=True, capture_output=True, timeout=programs.HANGS)
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("the processes of a machine meet at the loopback, which is down here", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
