#!/usr/bin/env python3
"""How fast gpt-board is, and what gpt-train --live costs the run that it shows. Needs a build, a text and no packages.
usage: scripts/measure_board.py latency|cost FILE [gpt-train flags...]
       scripts/measure_board.py runs
       scripts/measure_board.py reconnections [MINUTES]

latency         from a logged update of nanogpt_cpu to its arrival at a client of --live, and how many messages a second such a client gets
cost            nanogpt_cpu with --live and two viewers beside the same run without, alternating: needs an idle machine. ROUNDS (10), STEPS (500)
runs            100 runs of 100,000 steps (1.0 GB in a temporary folder): the time to their table, and then to the curves of ten of them
reconnections   the memory of a gpt-board beside a run that goes on, over 1,000 connections that come and go in so many MINUTES (60)"""

import contextlib
import http.client
import json
import math
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("GPT_BIN", ROOT / "build/bin"))
HANGS = 300  # seconds


def training(folder, text, *flags):
    return [str(BIN / "gpt-train"), "--config", str(ROOT / "configs/nanogpt_cpu.yaml"), "--data.text", str(text), "--tokenizer", "char", "--device", "cpu",
            "--eval_interval", "0", "--checkpoint_interval", "0", "--output_dir", str(folder), *map(str, flags)]


def started(command):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def address_in(process):
    """Of the page of a run with --live."""
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return int(found[1])
    sys.exit("error: the run has ended without a page")


class Viewer(threading.Thread):
    """Notes when each message came, and when each step was first among the points of the curve of losses."""

    def __init__(self, port, name):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS)
        self.connection.request("GET", "/events?name=" + urllib.parse.quote(name))
        self.answer = self.connection.getresponse()
        self.messages, self.seen = [], {}
        self.start()

    def run(self):
        while line := self.answer.readline():
            if not line.startswith(b"data: "):
                continue
            now = time.time()
            self.messages.append(now)
            for step in json.loads(line[len(b"data: "):]).get("curves", {}).get("loss", {}).get("steps", []):
                self.seen.setdefault(step, now)


class Onlooker(threading.Thread):
    """Takes what a viewer on another machine would, at next to no cost for this one."""

    def __init__(self, port, name):
        super().__init__(daemon=True)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=HANGS)
        self.socket.sendall(f"GET /events?name={urllib.parse.quote(name)} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        self.start()

    def run(self):
        while self.socket.recv(1 << 20):
            pass


def board_seconds(run):
    """Processor time that the gpt-board of a run has taken, while it is there."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # any process may end meanwhile
            name, fields = stat.read_text().rsplit(")", 1)
            if name.endswith("(gpt-board") and int(fields.split()[1]) == run.pid:
                return sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return None


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def latency(text, *flags):
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root, "run")
        run = started(training(folder, text, "--max_steps", 1000, "--log_interval", 5, "--live", "127.0.0.1:0", *flags))
        viewer = Viewer(address_in(run), "run")
        run.wait()
        viewer.join(timeout=10)
        first = min(viewer.messages)
        waits = [1e3 * (viewer.seen[line["step"]] - line["time"]) for line in lines_of(folder)
                 if "step_ms" in line and line["time"] > first and line["step"] in viewer.seen]
        busiest = max(sum(begin <= other < begin + 1 for other in viewer.messages) for begin in viewer.messages)
        print(f"from a logged update to a client: median {statistics.median(waits):.1f} ms, at most {max(waits):.1f} ms, of {len(waits)} updates")
        print(f"at most {busiest} messages within a second, of {len(viewer.messages)}")


def tokens_per_second(folder):
    return statistics.median(line["tokens_per_second"] for line in lines_of(folder) if "step_ms" in line and line["step"] > 10)


def cost(text, *flags):
    rounds, steps = int(os.environ.get("ROUNDS", 10)), int(os.environ.get("STEPS", 500))
    ratios, shares = [], []
    with tempfile.TemporaryDirectory() as root:
        for _ in range(rounds):
            speed = {}
            for is_live in (False, True):
                folder = pathlib.Path(root, "run")
                shutil.rmtree(folder, ignore_errors=True)
                run = started(training(folder, text, "--max_steps", steps, "--log_interval", 10, *flags, *(["--live", "127.0.0.1:0"] if is_live else [])))
                if is_live:
                    port = address_in(run)
                    viewers = [Onlooker(port, "run") for _ in range(2)]
                    begun, seconds = time.time(), math.nan
                    while run.poll() is None:
                        if (taken := board_seconds(run)) is not None:
                            seconds = taken / (time.time() - begun)
                        time.sleep(1)
                    shares.append(seconds)
                    for viewer in viewers:
                        viewer.join(timeout=10)
                else:
                    run.communicate()
                speed[is_live] = tokens_per_second(folder)
            ratios.append(speed[True] / speed[False])
            print(f"without {speed[False]:,.0f} tokens/s, with {speed[True]:,.0f}: {100 * (1 - ratios[-1]):+.2f} % slower")
    print(f"median: {100 * (1 - statistics.median(ratios)):+.2f} % slower with --live and two viewers; gpt-board took "
          f"{100 * statistics.median(shares):.2f} % of a core")


def board(*words):
    process = subprocess.Popen([str(BIN / "gpt-board"), *map(str, words), "--port", "0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    return process, int(re.search(r":(\d+)/", process.stdout.readline())[1])


def ask(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS)
    connection.request("GET", path)
    return connection.getresponse()


def kilobytes(process):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())[1])


def runs():
    kRuns, kSteps = 100, 100_000
    with tempfile.TemporaryDirectory() as root:
        lines = []
        for step in range(1, kSteps + 1):
            line = {"step": step, "loss": round(1.5 + 3 / step**0.3 + 0.01 * (step * 7919 % 13), 6), "lr": 0.001, "grad_norm": 0.5}
            if step % 100 == 0:
                line |= {"step_ms": 20.5, "tokens_per_second": 37463.4, "sequences_per_second": 585.4, "peak_memory_mb": 440.0}
            lines.append(json.dumps(line | {"time": 1764000000 + 0.02 * step, "tokens": 768 * step}, separators=(",", ":")))
            if step % 1000 == 0:
                lines.append(json.dumps({"step": step, "val_loss": 1.6 + 3 / step**0.3, "val_perplexity": 5.0, "time": 1764000000 + 0.02 * step,
                                         "tokens": 768 * step}, separators=(",", ":")))
        text = "\n".join(lines) + "\n"
        for number in range(kRuns):
            folder = pathlib.Path(root, f"run_{number:03}")
            folder.mkdir()
            (folder / "metrics.jsonl").write_text(text)
        began = time.monotonic()
        process, port = board(root)
        answer, found = ask(port, "/events"), 0
        while found < kRuns:
            line = answer.readline()
            found += len(json.loads(line[len(b"data: "):])["runs"]) if line.startswith(b"data: ") else 0
        shown = time.monotonic()
        points = sum(len(json.load(ask(port, f"/curves?name=run_{number:03}"))["mean_loss"]["steps"]) for number in range(10))
        print(f"{kRuns} runs of {kSteps:,} steps, {kRuns * len(text) / 1e9:.1f} GB: their table after {shown - began:.2f} s, the curves of ten "
              f"({points:,} points) after {time.monotonic() - shown:.2f} s more, {kilobytes(process) / 1e3:.0f} MB of memory")
        process.terminate()
        process.wait()


def reconnections(minutes=60.0):
    kConnections = 1000
    with tempfile.TemporaryDirectory() as root:
        text = pathlib.Path(root, "text.txt")
        text.write_text("It is told again and again, and every time a little otherwise.\n" * 200)
        run = started(training(pathlib.Path(root, "runs/run"), text, "--max_steps", 10**7, "--threads", 1, "--log_interval", 100))
        threading.Thread(target=run.stderr.read, daemon=True).start()
        while not pathlib.Path(root, "runs/run/metrics.jsonl").exists():
            time.sleep(0.1)
        process, port = board(pathlib.Path(root, "runs"))
        began, memory = time.monotonic(), []
        for number in range(kConnections):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS)
            connection.request("GET", "/events" if number % 2 else "/events?name=run")
            answer = connection.getresponse()
            while not answer.readline().startswith(b"data: "):
                pass
            time.sleep(max(0.0, began + 60 * float(minutes) * number / kConnections - time.monotonic()))
            connection.close()
            if number % 100 == 99:
                memory.append(kilobytes(process) / 1e3)
                print(f"after {number + 1:,} connections and {(time.monotonic() - began) / 60:.1f} minutes: {memory[-1]:.2f} MB", flush=True)
        print(f"from the first to the last hundred: {memory[-1] - memory[0]:+.2f} MB")
        for ended in (process, run):
            ended.terminate()
            ended.wait()


PARTS = {"latency": latency, "cost": cost, "runs": runs, "reconnections": reconnections}
if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS or (sys.argv[1] in ("latency", "cost") and len(sys.argv) < 3):
        sys.exit(__doc__)
    PARTS[sys.argv[1]](*sys.argv[2:])
