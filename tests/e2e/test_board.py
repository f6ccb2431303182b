"""gpt-board, and gpt-train --live: runs as a client sees them while they go, are killed and come back."""

import contextlib
import http.client
import json
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import browser
import programs

LONG = {**programs.TINY, "training.max_steps": 10**6, "training.checkpoint_interval": 5, "training.eval_interval": 50}


class Board:
    """Answers at `port` once this object exists."""

    def __init__(self, *words):
        self.process = subprocess.Popen(programs.command("gpt-board", *words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        self.port = int(re.search(r":(\d+)/", self.address)[1])

    def close(self):
        """What it has said, and its exit status."""
        self.process.terminate()
        said = "".join(self.process.communicate(timeout=programs.HANGS))
        return said, self.process.returncode


def ask(port, path, method="GET", **headers):
    """Status, headers and text."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=programs.HANGS)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


class Stream:
    """What a page hears: `state` has the newest value of each field."""

    def __init__(self, port, path="/events"):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=programs.HANGS)
        self.connection.request("GET", path, headers={"Accept": "text/event-stream"})
        self.answer = self.connection.getresponse()
        assert (self.answer.status, self.answer.headers["Content-Type"]) == (200, "text/event-stream"), self.answer.status
        self.state, self.runs, self.steps = {}, {}, []

    def close(self):
        self.connection.close()

    def read(self):
        """The next message is taken in; False at the end."""
        while line := self.answer.readline():
            if line.startswith(b"data: "):
                message = json.loads(line[len(b"data: "):])
                self.state.update(message)
                self.runs.update({run["name"]: run for run in message.get("runs", [])})
                self.steps = [] if message.get("is_whole") else self.steps
                if curve := message.get("curves", {}).get("loss"):
                    self.steps = [step for step in self.steps if step < curve.get("from", 0)] + curve["steps"]
                return True
        return False

    def wait_for(self, holds):
        while not holds(self):
            assert self.read(), "the stream has ended"


def live(stream):
    return stream.state.get("live", {}).get("state")


class WithRuns(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpt-board-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.text = programs.write_text(self.folder)
        self.models = self.folder / "models"
        self.models.mkdir()

    def board(self, *words):
        board = Board("--port", 0, *words)
        self.addCleanup(board.close)
        return board

    def stream(self, port, path="/events"):
        stream = Stream(port, path)
        self.addCleanup(stream.close)
        return stream

    def start(self, name, settings={}):
        command = programs.command("gpt-train", *programs.flags({**LONG, "data.text": self.text, "output_dir": self.models / name, **settings}))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait, timeout=programs.HANGS)
        self.addCleanup(process.kill)
        return process

    def end(self, process, number):
        process.send_signal(number)
        return process.wait(timeout=programs.HANGS)


class Following(WithRuns):
    def test_a_run_appears_is_killed_comes_back_and_is_stopped(self):
        board = self.board(self.models)
        table = self.stream(board.port)
        table.wait_for(lambda told: told.state.get("runs") == [])
        process = self.start("fox")
        table.wait_for(lambda told: told.runs.get("fox", {}).get("state") == "running")
        run = self.stream(board.port, "/events?name=fox")
        run.wait_for(lambda told: len(told.steps) > 20 and told.state["live"]["activity"] and "evaluation" in told.state)
        self.assertEqual(run.state["total_steps"], 10**6)
        self.assertEqual(run.steps, sorted(set(run.steps)))
        self.assertIn("n_layer: 2", run.state["configuration"])
        self.end(process, signal.SIGKILL)
        run.wait_for(lambda told: live(told) == "killed")
        table.wait_for(lambda told: told.runs["fox"]["state"] == "killed")
        reached = run.steps[-1]
        process = self.start("fox")
        run.wait_for(lambda told: live(told) == "running" and told.steps[-1] > reached)
        self.assertEqual(run.steps, sorted(set(run.steps)))
        self.assertRegex(" ".join(event["what"] for event in run.state["events"]), "resumed; the start before was killed")
        self.end(process, signal.SIGINT)
        run.wait_for(lambda told: live(told) == "stopped")
        self.assertEqual(run.state["stopped"], "by SIGINT; the same command resumes it")
        status, headers, text = ask(board.port, "/metrics")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        self.assertIn('gpt_run_state{run="fox",state="stopped"} 1\n', text)
        self.assertRegex(text, r'gpt_run_best_validation_loss\{run="fox"\} [0-9.]+\n')
        shutil.rmtree(self.models / "fox")
        table.wait_for(lambda told: told.state["runs"] == [])
        while run.read():  # of a run that is gone there is no more to tell
            pass

    def test_what_the_device_does(self):
        board = self.board(self.models)
        self.start("fox", {"training.checkpoint_interval": 10**6, "training.eval_interval": 10**6, "training.log_interval": 1})
        table = self.stream(board.port)
        table.wait_for(lambda told: "fox" in told.runs)
        run = self.stream(board.port, "/events?name=fox")
        run.wait_for(lambda told: "device" in told.state)
        self.assertRegex(run.state["device"]["read"][0], r"^[0-9.]+ of \d+ cores? busy.*, memory [0-9.]+ [MG]B of [0-9.]+ [MG]B")
        self.assertRegex(run.state["device"]["verdicts"][0], r"^This run keeps [0-9.]+ of \d+ cores? busy")
        self.assertRegex(ask(board.port, "/metrics")[2], r'gpt_run_cores_busy\{run="fox"\} [0-9.]+\n')

    def test_which_run_to_use_is_what_gpt_diagnose_says(self):
        for name, seed in (("fox", 1), ("hare", 1), ("hen", 2)):
            rate = 1e-2 if name == "fox" else 1e-3
            programs.train(self.models / name, self.text, training__max_steps=8, **{"training.learning_rate": rate, "seed": seed})
        said = json.loads(programs.run("gpt-diagnose", "--run", self.models, "--json", check_code=0).stdout)
        [group] = json.loads(ask(self.board(self.models).port, "/comparison")[2])["groups"]
        self.assertRegex(group["verdict"], "^(fox is better than h\w+ .2 seeds.|h\w+ .2 seeds. is better than fox|.* cannot be told from ).* ± ")
        self.assertEqual([group["verdict"]], [verdict.replace(f"{self.models}/", "") for verdict in said["verdicts"]])
        self.assertEqual([run["name"] for run in group["runs"]], [pathlib.Path(run["folder"]).name for run in said["runs"]])
        self.assertEqual([dict(zip(group["settings"], run["settings"])) for run in group["runs"]],
                         [run["differing_settings"] for run in said["runs"]])

    def test_pages_ask_for_nothing_elsewhere(self):
        programs.train(self.models / "fox", self.text, training__max_steps=2)
        for folder, stream in ((self.models, None), (self.models / "fox", "events?name=fox")):
            board = self.board(folder)
            status, headers, page = ask(board.port, "/")
            self.assertEqual(status, 200)
            self.assertIn("default-src 'none'; connect-src 'self'; ", headers["Content-Security-Policy"])
            self.assertIn("default-src 'none'; connect-src 'self'; ", page)
            self.assertEqual(stream and f'"stream":"{stream}"' in page, stream and True)
        self.assertNotIn("connect-src", (self.models / "fox/report.html").read_text())
        self.assertEqual(ask(board.port, "/run?name=none")[0], 404)
        self.assertEqual(ask(board.port, "/events?name=none")[0], 404)
        self.assertEqual(json.loads(ask(board.port, "/curves?name=fox")[2])["mean_loss"]["steps"], [1, 2])


class Guards(WithRuns):
    def test_without_the_token_nothing_is_answered(self):
        board = self.board(self.models, "--token", "secret-1")
        for path in ("/", "/?token=secret-2", "/?token=", "/events?xtoken=secret-1", "/metrics", "/none"):
            self.assertEqual(ask(board.port, path)[0], 401, path)
        self.assertEqual(ask(board.port, "/metrics", Authorization="Bearer secret-1")[0], 200)
        self.assertEqual(ask(board.port, "/?token=secret-1", Host="elsewhere.example")[0], 200)
        self.assertEqual(ask(board.port, "/?token=secret-1", Origin="http://elsewhere.example")[0], 403)
        self.assertTrue(board.address.endswith("/?token=secret-1"))
        said, status = board.close()
        self.assertNotIn("secret", said)
        self.assertEqual(status, 143)

    def test_other_machines_need_a_token(self):
        board = self.board(self.models, "--host", "0.0.0.0")
        token = re.search(r"/\?token=([0-9a-f]{48})$", board.address)[1]
        self.assertEqual(ask(board.port, "/")[0], 401)
        self.assertEqual(ask(board.port, f"/?token={token}")[0], 200)

    def test_pages_of_other_sites_and_changes_are_refused(self):
        board = self.board(self.models)
        self.assertEqual(ask(board.port, "/", Host="elsewhere.example")[0], 403)
        self.assertEqual(ask(board.port, "/metrics", Origin="http://elsewhere.example")[0], 403)
        for method in ("POST", "PUT", "DELETE"):
            self.assertEqual(ask(board.port, "/", method, **{"Content-Length": "0"})[0], 405)
        self.assertEqual(ask(board.port, "/events", "HEAD")[0], 405)

    def test_what_is_no_folder(self):
        done = programs.run("gpt-board", self.folder / "none", check_code=2)
        self.assertEqual(done.stderr, f"error: {self.folder}/none: there is no such folder; name the output_dir of a run, such as models/NAME\n")
        self.assertIn("name the folder of a run", programs.run("gpt-board", check_code=2).stderr)


class Live(WithRuns):
    def train(self, *words):
        command = programs.command("gpt-train", *programs.flags({**LONG, "data.text": self.text, "output_dir": self.models / "fox"}), *words)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait, timeout=programs.HANGS)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def test_the_page_of_a_run_ends_with_it(self):
        process = self.train("--live", "127.0.0.1:0")
        port = next(int(found[1]) for found in map(re.compile(r"Live page: http://127\.0\.0\.1:(\d+)/ \(.*ssh -L").match, process.stderr) if found)
        run = self.stream(port, "/events?name=fox")
        run.wait_for(lambda told: live(told) == "running" and told.steps)
        process.send_signal(signal.SIGINT)
        while run.read():
            pass
        self.assertEqual(live(run), "stopped")
        self.assertIn("Stopped by SIGINT", process.stderr.read())
        self.assertEqual(process.wait(timeout=programs.HANGS), 130)
        with self.assertRaises(ConnectionRefusedError):
            ask(port, "/")

    def test_a_port_that_is_taken_costs_a_line(self):
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
            port = taken.getsockname()[1]
            done = programs.run("gpt-train", *programs.flags({**programs.TINY, "training.max_steps": 2, "data.text": self.text,
                                "output_dir": self.models / "fox", "live": f"127.0.0.1:{port}"}), check_code=0)
        self.assertIn(f"warning: no live page: cannot listen at 127.0.0.1, port {port}: Address already in use; choose another --live ADDRESS:PORT\n",
                      done.stderr)
        self.assertEqual(len(programs.losses(self.models / "fox")), 3)

    def test_an_address_that_is_none(self):
        for address in ("8090", "127.0.0.1:", "127.0.0.1:70000", ":80", "some.txt"):
            done = programs.run("gpt-train", "--data", self.text, "--live", address, check_code=2)
            self.assertEqual(done.stderr.splitlines()[-1], f"error: --live: '{address}' is not ADDRESS:PORT, such as 127.0.0.1:8090")


@unittest.skipUnless(browser.DRIVER, browser.DRIVER_MISSING)
class Page(WithRuns):
    def setUp(self):
        super().setUp()
        self.browser = browser.Session(self.folder / "profile")
        self.addCleanup(self.browser.close)

    def wait_for(self, id, text):
        self.browser.wait_for(lambda: re.search(text, self.browser.text(id)))

    def assert_fits_a_phone(self):
        for colours in ("light", "dark"):
            self.browser.look_as(360, colours)
            self.assertEqual(self.browser.script("return innerWidth"), 360)
            self.assertLessEqual(self.browser.overflow(), 0, colours)

    def test_the_page_says_which_run_to_use(self):
        for name, rate in (("fox", 1e-2), ("<b>hen", 1e-3)):
            programs.train(self.models / name, self.text, training__max_steps=2, **{"training.learning_rate": rate})
        self.browser.open(f"http://127.0.0.1:{self.board(self.models).port}/")
        self.wait_for("comparison", r"(fox is [0-9.]+ better than <b>hen|<b>hen is [0-9.]+ better than fox) .*needs runs with other seeds")
        self.assertRegex(self.browser.text("comparison"), r"Best validation loss\s*training.learning_rate")
        self.assertEqual(self.browser.text("failure"), "")
        self.assert_fits_a_phone()

    def test_a_keyboard_is_enough(self):
        for name in ("fox", "hen"):
            programs.train(self.models / name, self.text, training__max_steps=2)
        self.browser.open(f"http://127.0.0.1:{self.board(self.models).port}/")
        self.wait_for("status", "^2 runs: 2 finished")

        def tab_to(what):
            self.browser.wait_for(lambda: self.browser.keys(browser.TAB) or self.browser.script(f"return document.activeElement.matches('{what}')"))

        rows = "return [...document.querySelectorAll('#runs tbody a')].map((link) => link.textContent)"
        tab_to("button[data-key=name]")
        self.browser.keys(browser.ENTER)
        self.assertEqual(self.browser.script(rows), ["fox", "hen"])
        self.browser.keys(browser.ENTER)
        self.assertEqual(self.browser.script(rows), ["hen", "fox"])
        tab_to("input[type=checkbox]")
        self.browser.keys(browser.SPACE)
        self.browser.wait_for(lambda: self.browser.script("return document.body.dataset.curves") == "1")
        tab_to("#runs a")
        self.browser.keys(browser.ENTER)
        self.wait_for("name", "^hen$")

    def test_curves_are_laid_over_each_other_where_they_compare(self):
        other = self.folder / "other.txt"
        other.write_text(self.text.read_text()[::-1])
        for name, settings in {"fox": {}, "hen": {}, "bpe": {"data.tokenizer": "bpe:300"}, "other": {"data.text": other}}.items():
            programs.train(self.models / name, self.text, training__max_steps=4, training__eval_interval=2, **settings)
        self.browser.open(f"http://127.0.0.1:{self.board(self.models).port}/")
        self.wait_for("status", "^4 runs: 4 finished")
        for name in ("hen", "fox", "bpe", "other"):
            self.browser.script(f"document.querySelector('[aria-label=\"Draw the curve of {name}\"]').click()")
        self.wait_for("left-out", "^Not drawn: bpe, other read another text than hen, or in other tokens.$")
        self.assertEqual(self.browser.script("return document.body.dataset.curves"), "2")
        self.browser.script("document.querySelector('[value=bits_per_byte]').click()")
        self.wait_for("left-out", "^Not drawn: other reads another text than hen.$")
        self.assertEqual(self.browser.script("return document.body.dataset.curves"), "3")

    def test_a_run_that_is_killed_and_comes_back_while_gpt_board_does_too(self):
        board = self.board(self.models)
        self.browser.open(f"http://127.0.0.1:{board.port}/")
        self.wait_for("status", "^There are no runs yet")
        process = self.start("fox")
        self.wait_for("status", r"^1 run: 1 running\.$")
        self.browser.open(f"http://127.0.0.1:{board.port}/run?name=fox")
        self.wait_for("status", r"^Training: step [1-9]\d* of 1,000,000")
        self.browser.wait_for(lambda: int(self.browser.script("return document.body.dataset.charts")) >= 5)
        self.end(process, signal.SIGKILL)
        self.wait_for("status", r"^Killed at step [\d,]+ of 1,000,000")
        board.close()
        self.wait_for("connection", "^No answer from gpt-board since")
        self.start("fox")
        self.board(self.models, "--port", board.port)
        self.wait_for("status", r"^Training: step [\d,]+ of 1,000,000")
        self.wait_for("connection", "^$")
        self.assertEqual(self.browser.text("failure"), "")
        self.assert_fits_a_phone()


if __name__ == "__main__":
    unittest.main()
