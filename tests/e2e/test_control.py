"""gpt-train --control and gpt-board tell: a run is told what to do as it goes. What changes its numbers is one of its decisions, so that neither a
kill nor another number of processes makes it another run, and a replay of the list repeats it to the bit. And training.on_event."""

import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import unittest

import programs
import test_board
from checkpoints import load, same

# It would go on for hours; its updates have four micro-batches, which 1, 2 and 4 processes divide.
OPTIONS = {**programs.TINY, "training.max_steps": 10**6, "training.batch_size": 8, "training.gradient_accumulation_steps": 4, "distributed.lanes": 4,
           "training.eval_interval": 1000, "training.checkpoint_interval": "50 steps", "training.warmup_steps": 20, "training.lr_schedule": "linear"}


class Run:
    """gpt-train --control in a folder, once it listens."""

    def __init__(self, test, folder, options, *words):
        self.folder, self.test = folder, test
        log = folder.parent / f"{folder.name}.stderr"
        self.log = log
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(programs.command("gpt-train", *programs.flags({**options, "output_dir": folder}), "--control", *words),
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)
        while not self.listens():
            test.assertIsNone(self.process.poll(), self.said())
            time.sleep(0.01)

    def listens(self):
        with socket.socket(socket.AF_UNIX) as client, open_folder(self.folder) as path:
            return client.connect_ex(path) == 0

    def said(self):
        return self.log.read_text()

    def tell(self, *words, check_code=0):
        return tell(self.folder, *words, check_code=check_code)

    def told_at(self, *words):
        """Its step when it did so."""
        return int(re.match(r"step ([\d,]+): ", self.tell(*words))[1].replace(",", ""))

    def end(self, after=20):
        """So many steps later, or a few more where it is too fast for that. It is told again and again, because it may come to another length that it
        was told before it was killed."""
        total = 1
        while self.process.poll() is None:
            told = programs.run("gpt-board", "tell", self.folder, "steps", total)
            if at := re.search(r"it is at step ([\d,]+)", told.stderr):
                total, after = int(at[1].replace(",", "")) + after, after + 50
            time.sleep(0.05)
        self.test.assertEqual(self.process.returncode, 0, self.said())

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=programs.HANGS)


class open_folder:
    """A path to its socket that is short, whatever its own is."""

    def __init__(self, folder):
        self.folder, self.fd = folder, None

    def __enter__(self):
        try:
            self.fd = os.open(self.folder, os.O_PATH)
        except FileNotFoundError:
            return "/nowhere"
        return f"/proc/self/fd/{self.fd}/control.sock"

    def __exit__(self, *_):
        if self.fd is not None:
            os.close(self.fd)


def tell(folder, *words, check_code=0):
    done = programs.run("gpt-board", "tell", folder, *words, check_code=check_code)
    return (done.stdout if check_code == 0 else done.stderr).strip()


def status(folder):
    return json.loads((folder / "status.json").read_text())


def decisions(folder):
    path = folder / "decisions.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Control(programs.WithText):
    def start(self, name, *words, **options):
        merged = {**OPTIONS, "data.text": self.text, **{key.replace("__", "."): value for key, value in options.items()}}
        return Run(self, self.root / name, merged, *words)

    def replay(self, name, other, **options):
        merged = {**OPTIONS, "data.text": self.text, "output_dir": self.root / name, **{key.replace("__", "."): value for key, value in options.items()}}
        return programs.run("gpt-train", *programs.flags(merged), "--replay", self.root / other / "decisions.jsonl", check_code=0)

    def assert_same_run(self, name, other):
        one, two = load(self.root / name / "ckpt.pt"), load(self.root / other / "ckpt.pt")
        for key in ("model", "optimizer", "rng", "step", "data", "best_val_loss", "schedule", "decisions"):
            self.assertEqual(key in one, key in two, key)
            self.assertTrue(same(one.get(key), two.get(key)), f"{name}: {key}")
        self.assertEqual(programs.losses(self.root / name), programs.losses(self.root / other))
        self.assertEqual((self.root / name / "decisions.jsonl").read_bytes(), (self.root / other / "decisions.jsonl").read_bytes())

    def test_a_paused_run_answers_and_becomes_what_it_would_have_been(self):
        run = self.start("paused")
        step = run.told_at("pause")
        self.assertEqual((status(run.folder)["activity"], status(run.folder)["step"]), ("paused", step))
        self.assertIn("the run is paused already", run.tell("pause"))
        self.assertRegex(run.tell("validate"), rf"^step {step:,}: the validation loss is \d+\.\d+")
        self.assertIn(f"saved {run.folder}/ckpt.pt", run.tell("save"))
        self.assertEqual(load(run.folder / "ckpt.pt")["step"], step)
        self.assertIn(f"a sample is in {run.folder}/samples", run.tell("sample"))
        self.assertTrue((run.folder / f"samples/step_{step:08}.txt").exists())
        self.assertEqual(status(run.folder)["activity"], "paused")
        self.assertEqual(run.told_at("validate"), step, "it has not gone on")
        self.assertEqual(stat.S_IMODE((run.folder / "control.sock").stat().st_mode), 0o600)
        self.assertIn("the run goes on", run.tell("continue"))
        run.end()
        self.assertFalse((run.folder / "control.sock").exists())
        self.assertEqual({decision["what"] for decision in decisions(run.folder)}, {"steps"})
        self.replay("undisturbed", "paused")
        self.assert_same_run("undisturbed", "paused")
        self.assertIn("no run goes on there", tell(run.folder, "pause", check_code=1))
        finished = programs.run("gpt-train", *programs.flags({**OPTIONS, "data.text": self.text, "output_dir": run.folder}), check_code=0)
        self.assertIn("is finished", finished.stderr)

    def test_another_rate_and_length_outlive_kills_and_are_replayed(self):
        run = self.start("killed")
        first = run.told_at("rate", 0.5)
        run.kill()  # before any checkpoint was due, without which it would begin anew
        run = self.start("killed")
        run.told_at("pause")
        step = run.told_at("rate", 0.25)
        run.told_at("save")
        run.told_at("rate", 2)  # of the same step, after the checkpoint has the other one
        total = run.told_at("steps", 10**5) and 10**5
        self.assertIn(f"the run ends after step {total + 500:,} instead of {total:,}", run.tell("longer", 500))
        self.assertIn(f"the run ends after step {total:,} instead", run.tell("shorter", 500))
        while status(run.folder)["total_steps"] != total:
            time.sleep(0.02)
        run.kill()
        run = self.start("killed")
        run.told_at("validate")
        self.assertIn("the learning rate is 2 times the schedule's from now on, as was decided before", run.said())
        run.end()
        said = decisions(run.folder)
        self.assertIn({"step": step, "what": "learning_rate_factor", "value": 2}, said)
        self.assertIn({"step": step, "what": "steps", "value": total}, said)
        self.assertEqual({"step": first, "what": "learning_rate_factor", "value": 0.5} in said, first < step, "or the same step has another one")
        self.replay("replayed", "killed")
        self.assert_same_run("replayed", "killed")
        # From the last length on, what was left of the schedule, nearly all of it, is gone through in so many steps in a line.
        length = next(decision for decision in reversed(said) if decision["what"] == "steps")
        rate = 2 * OPTIONS["training.learning_rate"] / (length["value"] - length["step"])
        last = [line["lr"] for line in programs.metrics(run.folder) if "lr" in line][-1]
        self.assertAlmostEqual(last, rate, delta=0.05 * rate + 2 * 1e-5)

    def test_what_the_configuration_says_anew_counts(self):
        """The length that the run was told holds for the same configuration, and no longer for another one."""
        run = self.start("longer", training__max_steps=10**5)
        step = run.told_at("steps", 2 * 10**5)
        run.tell("stop")
        self.assertEqual(run.process.wait(timeout=programs.HANGS), 130)
        words = programs.flags({**OPTIONS, "data.text": self.text, "output_dir": run.folder, "training.max_steps": 10**5})
        self.assertIn("of 200,000: the same command continues the run", programs.checks(*words, "--no-probe")["output folder"]["detail"])
        run = self.start("longer", training__max_steps=10**5)
        self.assertEqual(status(run.folder)["total_steps"], 2 * 10**5)
        run.tell("stop")
        self.assertEqual(run.process.wait(timeout=programs.HANGS), 130)
        run = self.start("longer", training__max_steps=3 * 10**5)
        run.told_at("pause")
        self.assertEqual(status(run.folder)["total_steps"], 3 * 10**5)
        self.assertEqual(decisions(run.folder), [{"step": step, "what": "steps", "value": 2 * 10**5}])
        run.kill()

    def test_processes_do_the_same_at_the_same_update(self):
        run = self.start("two", distributed__processes=2)
        run.told_at("pause")
        self.assertEqual(status(run.folder)["activity"], "paused")
        self.assertIn("validation loss", run.tell("validate"))
        step = run.told_at("rate", 0.5)
        run.told_at("save")
        run.tell("continue")
        run.end()
        self.assertIn({"step": step, "what": "learning_rate_factor", "value": 0.5}, decisions(run.folder))
        self.replay("one", "two")
        self.assert_same_run("one", "two")
        stopped = self.start("two stopped", distributed__processes=2, distributed__zero=2)
        stopped.told_at("pause")
        self.assertIn("saved", stopped.tell("save"))
        self.assertIn("a sample is in", stopped.tell("sample"))
        self.assertIn("it saves, and the same command goes on", stopped.tell("stop"))
        self.assertEqual(stopped.process.wait(timeout=programs.HANGS), 130, stopped.said())

    def test_stop_is_ctrl_c(self):
        for how in ("stop", "stop while paused", "Ctrl-C while paused"):
            with self.subTest(how=how):
                run = self.start(how)
                run.told_at("pause") if "paused" in how else run.told_at("validate")
                run.tell("stop") if how.startswith("stop") else run.process.send_signal(signal.SIGINT)
                self.assertEqual(run.process.wait(timeout=programs.HANGS), 130)
                self.assertRegex(run.said(), r"Stopped by SIGINT after step \d+: saved .*ckpt.pt; the same command resumes from there")
                self.assertEqual(status(run.folder)["state"], "stopped")
                self.assertEqual(load(run.folder / "ckpt.pt")["step"], status(run.folder)["step"])

    def test_what_cannot_be_done_is_said_in_one_line(self):
        run = self.start("refuses")
        run.told_at("pause")
        for words, code, said in (
                (["puase"], 2, "cannot be told 'puase'; did you mean 'pause'?"), (["rate"], 2, "rate needs a number"), (["rate", "0"], 2, "rate needs a number from"),
                (["save", "now"], 2, "save takes no value"), (["steps", 1], 1, "the run cannot end after step 1, because it is at step"),
                (["shorter", 10**6], 1, "the run cannot end after step 0, because it is at step")):
            with self.subTest(words=words):
                error = run.tell(*words, check_code=code)
                self.assertIn(said, error)
                self.assertEqual(len(error.splitlines()), 1, error)
        self.assertEqual(decisions(run.folder), [])
        missing = tell(self.root / "no such folder", "pause", check_code=2)
        self.assertIn("there is no such folder", missing)
        self.assertIn("needs a folder and a verb", tell(run.folder, check_code=2))
        run.kill()
        self.assertIn("no run goes on there", tell(run.folder, "pause", check_code=1))
        timed = self.start("timed", training__max_time="1 hour")
        self.assertIn("the length of this run is its training.max_time", timed.tell("longer", 5, check_code=1))
        timed.kill()

    def test_a_run_without_control_cannot_be_told_anything(self):
        merged = {**OPTIONS, "data.text": self.text, "output_dir": self.root / "alone"}
        run = subprocess.Popen(programs.command("gpt-train", *programs.flags(merged)), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(run.stderr.close)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        next(line for line in run.stderr if line.startswith("step "))
        self.assertIn("start the same command with --control", tell(self.root / "alone", "pause", check_code=1))
        self.assertFalse((self.root / "alone/control.sock").exists())

    def test_noise_at_the_socket_disturbs_nothing(self):
        run = self.start("noise")
        clients = [socket.socket(socket.AF_UNIX) for _ in range(10)]
        for client in clients:
            self.addCleanup(client.close)
            with open_folder(run.folder) as path:
                client.connect(path)
        for client, noise in zip(clients, (b"", b"{", b"\0" * 3000, b"x" * 10**6, b"\n\n\n", b'{"verb": "rate", "value": 1e999}\n')):
            try:
                client.sendall(noise)
            except BrokenPipeError:
                pass
        step = run.told_at("validate")
        while run.told_at("validate") <= step:
            pass
        run.kill()

    @programs.long
    def test_events_at_random_moments_and_kills_between_them(self):
        """Nothing that was answered is lost, and a replay of the list from the start gives the same bytes."""
        seed = int(os.environ.get("GPT_EVENT_SEED", random.randrange(10**6)))
        count = int(os.environ.get("GPT_EVENTS", "40"))
        draw = random.Random(seed)
        options = {"training__max_steps": 60000, "training__batch_size": 4, "training__gradient_accumulation_steps": 2, "distributed__lanes": 1, "training__checkpoint_interval": "200 steps"}
        run, kills, answered, unanswered = self.start("random", **options), 0, {}, []
        for number in range(count):
            verb = draw.choice(["rate"] * 4 + ["steps"] * 2 + ["pause", "continue", "save", "validate", "sample"])
            value = {"rate": lambda: [round(draw.uniform(0.1, 3), 3)], "steps": lambda: [draw.randrange(40000, 90000)]}.get(verb, list)()
            teller = subprocess.Popen(programs.command("gpt-board", "tell", run.folder, verb, *value), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            kills_at_once = draw.random() < 0.1
            if not kills_at_once:
                teller.wait(timeout=programs.HANGS)
            else:
                time.sleep(draw.uniform(0, 0.05))
            if kills_at_once or draw.random() < 0.1:
                run.kill()
                kills += 1
            said, error = teller.communicate(timeout=programs.HANGS)
            self.assertTrue(teller.returncode == 0 or kills_at_once, f"seed {seed}: {verb}: {error}")
            what = {"rate": "learning_rate_factor"}.get(verb, verb)
            if teller.returncode == 0 and value and "already" not in said:
                answered[int(re.match(r"step ([\d,]+): ", said)[1].replace(",", "")), what] = number, value[0]
            elif teller.returncode != 0 and value:
                unanswered.append((number, what, value[0]))  # it may have been decided all the same
            if run.process.poll() is not None:
                run = self.start("random", **options)
            time.sleep(draw.uniform(0, 0.1))
        run.tell("continue")
        run.end(after=30)
        said = {(line["step"], line["what"]): line["value"] for line in decisions(run.folder)}
        for (step, what), (number, value) in answered.items():
            later = {other for later, kind, other in unanswered if later > number and kind == what}
            self.assertIn(said.get((step, what)), {value} | later, f"seed {seed}: {what} of step {step} was answered")
        self.replay("random again", "random", **options)
        self.assert_same_run("random again", "random")
        print(f"\n{count} events and {kills} kills with seed {seed}: {len(said)} decisions, the last step {load(run.folder / 'ckpt.pt')['step']}")


class Page(programs.WithText):
    """What a page of gpt-board --control may do, and who else may not."""

    def ask(self, port, path, body=None, method="POST", **headers):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=programs.HANGS)) as connection:
            connection.request(method, path, body=body, headers={"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def test_it_tells_the_run_and_nobody_elses_page_does(self):
        run = Run(self, self.root / "run", {**OPTIONS, "data.text": self.text})
        board = test_board.Board("--port", 0, "--control", run.folder)
        self.addCleanup(board.close)
        token = re.search(r"/\?token=([0-9a-f]{48})$", board.address)[1]  # on this machine, too
        path, pause = f"/tell?name=run&token={token}", '{"verb": "pause"}'
        own = {"Origin": f"http://127.0.0.1:{board.port}"}
        refused = {401: self.ask(board.port, "/tell?name=run", pause, **own), 403: self.ask(board.port, path, pause, Origin="http://elsewhere.example"),
                   404: self.ask(board.port, path.replace("name=run", "name=other"), pause, **own), 415: self.ask(board.port, path, pause, **{**own, "Content-Type": "text/plain"})}
        for wanted, (code, _) in refused.items():
            self.assertEqual(code, wanted)
        self.assertEqual(self.ask(board.port, path, method="GET", **own)[0], 404)
        self.assertEqual(self.ask(board.port, f"/?token={token}", pause, **own)[0], 405)
        self.assertNotIn("told '", run.said())
        stream = test_board.Stream(board.port, f"/events?name=run&token={token}")
        self.addCleanup(stream.close)
        stream.wait_for(lambda told: told.state.get("live", {}).get("may_be_told"))
        code, said = self.ask(board.port, path, pause, **own)
        self.assertEqual((code, json.loads(said)["done"]), (200, True))
        stream.wait_for(lambda told: told.state["live"]["activity"] == "paused")
        code, said = self.ask(board.port, path, '{"verb": "steps", "value": 1}', **own)
        self.assertEqual((code, json.loads(said)["done"]), (409, False))
        self.assertIn("did you mean 'save'?", self.ask(board.port, path, '{"verb": "sav"}', **own)[1])
        self.assertEqual(self.ask(board.port, path, '{"verb": "' + "x" * 5000 + '"}', **own)[0], 413)
        self.assertEqual(self.ask(board.port, path, '{"verb": "stop"}', **own)[0], 200)
        self.assertEqual(run.process.wait(timeout=programs.HANGS), 130)
        stream.wait_for(lambda told: not told.state["live"]["may_be_told"])

    def test_without_control_it_only_shows(self):
        run = Run(self, self.root / "shown", {**OPTIONS, "data.text": self.text})
        board = test_board.Board("--port", 0, run.folder)
        self.addCleanup(board.close)
        own = {"Origin": f"http://127.0.0.1:{board.port}"}
        self.assertEqual(self.ask(board.port, "/tell?name=shown", '{"verb": "pause"}', **own)[0], 405)
        stream = test_board.Stream(board.port, "/events?name=shown")
        self.addCleanup(stream.close)
        stream.wait_for(lambda told: told.state.get("live", {}).get("state") == "running")
        self.assertFalse(stream.state["live"]["may_be_told"])


class OnEvent(programs.WithText):
    def heard(self, path, last):
        """The objects that the program has got, until one for `last` is there."""
        while True:
            lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
            if any(line["event"] == last for line in lines):
                return lines
            time.sleep(0.02)

    def test_the_program_hears_of_start_best_and_end(self):
        file = self.root / "heard"
        command = json.dumps(["sh", "-c", 'read -r line; printf "%s\\n" "$line" >> "$0"', str(file)])
        options = {**programs.TINY, "data.text": self.text, "output_dir": self.root / "run", "training.on_event": command}
        programs.run("gpt-train", *programs.flags(options), check_code=0)
        lines = self.heard(file, "end")
        by_event = {line["event"]: line for line in lines}
        self.assertEqual(by_event["start"]["text"], "run: step 0 of 24: the run begins")
        self.assertEqual((by_event["end"]["run"], by_event["end"]["step"], by_event["end"]["total_steps"]), ("run", 24, 24))
        losses = [value for key, value in programs.losses(self.root / "run").items() if not isinstance(key, int)]
        self.assertEqual(min(line["val_loss"] for line in lines if line["event"] == "best"), min(losses))
        # It is remembered nowhere, and another start without it runs nothing.
        self.assertIn("on_event: []", (self.root / "run/effective_config.yaml").read_text())
        self.assertNotIn(str(file).encode(), (self.root / "run/ckpt.pt").read_bytes())
        self.assertNotIn(str(file), (self.root / "run/report.html").read_text())
        file.unlink()
        again = {**options, "training.max_steps": 32}
        del again["training.on_event"]
        programs.run("gpt-train", *programs.flags(again), check_code=0)
        self.assertFalse(file.exists())

    def test_a_program_that_is_not_there_is_refused_and_one_that_hangs_is_not_waited_for(self):
        options = {**programs.TINY, "data.text": self.text, "output_dir": self.root / "hangs"}
        refused = programs.run("gpt-train", *programs.flags(options), "--on_event", "[crul, x]", check_code=2)
        self.assertIn("training.on_event: there is no program 'crul'", refused.stderr)
        gate = self.root / "gate"
        os.mkfifo(gate)
        command = json.dumps(["sh", "-c", 'read -r line < "$0"', str(gate)])
        programs.run("gpt-train", *programs.flags(options), "--on_event", command, check_code=0)  # it ends all the same
        with open(gate, "w") as opened:  # and so do they now
            opened.write("go\n" * 10)


if __name__ == "__main__":
    unittest.main()
