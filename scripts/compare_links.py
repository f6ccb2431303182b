#!/usr/bin/env python3
"""Predicts how fast two processes train over a slow line, and measures it.

usage: sudo scripts/compare_links.py FILE [gpt-train flags...]

What the prediction knows is fitted on the loopback alone: what a message and a byte take, as `gpt-bench scaling` measures it, and how long
a process computes, from a run of two processes on this machine. Of the line it is told the rate, and nothing else; but that a connection
carries bytes one way at a time, which the model knows, was found with the counters of such a line. It is compared with runs of one process
on each of two machines, which are two network namespaces (tests/e2e/two_machines.py); they and the run on the loopback take turns. Prints
the medians over all rounds. Sending takes the cores, so other programs disturb it: look at the spread between rounds.
RATES ("1000 100") are in Mbit/s, ROUNDS (5) says how often each is run, SECONDS_EACH (15) for about how long.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))
import two_machines

RATES = [float(rate) for rate in os.environ.get("RATES", "1000 100").split()]
ROUNDS, SECONDS_EACH = int(os.environ.get("ROUNDS", 5)), float(os.environ.get("SECONDS_EACH", 15))
BIN = pathlib.Path(os.environ.get("GPT_BIN", ROOT / "build/bin"))
BATCH, SETTLED = 8, 4  # sequences of each process; steps that do not count
MODEL = ("--tokenizer", "char", "--device", "cpu", "--threads", 1, "--n_layer", 6, "--n_embd", 256, "--block_size", 64, "--dropout", 0,
         "--batch_size", BATCH)
QUIET = ("--warmup_steps", 1, "--log_interval", 1, "--eval_interval", 0, "--checkpoint_interval", 0, "--sample_interval", 0, "--restart")


def words(*parts):
    return [str(part) for part in parts]


def training(folder, text, steps, flags):
    # Two micro-batches, one for each process.
    return words(BIN / "gpt-train", "--data.text", text, *MODEL, "--gradient_accumulation_steps", 2, "--max_steps", steps, *QUIET,
                 "--output_dir", folder, *flags)


def step_seconds(folder):
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(r["step_ms"] for r in records if "step_ms" in r and r["step"] > SETTLED) / 1000


def finish(processes):
    for process in processes:
        errors = process.communicate()[1]
        if process.returncode != 0:
            sys.exit(f"error: gpt-train ended with {process.returncode}\n{errors}")


def start(command, **options):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options)


def on_loopback(folder, text, steps, flags):
    finish([start(training(folder, text, steps, [*flags, "--processes", "2"]))])
    return step_seconds(folder)


def on_line(rate, folder, text, steps, flags):
    with two_machines.joined_at(f"{rate:g}mbit") as machines:
        command = training(folder, text, steps, flags)
        finish([start(machine.command(*command), env=machine.environment()) for machine in machines])
    return step_seconds(folder)


def simulated(folder, text, flags, *more):
    """Seconds of computing and of sending of two processes, by gpt-bench."""
    subprocess.run(words(BIN / "gpt-bench", "scaling", "--data.text", text, *MODEL, "--gradient_accumulation_steps", 1, "--zero", 0,
                         "--tensor_parallel", 1, "--devices", 2, "--results", folder, *more, *flags),
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    newest = max(folder.glob("scaling-*.json"), key=lambda path: path.stat().st_mtime)
    row = json.loads(newest.read_text())["rows"][0]
    return row["computing_seconds"], row["sending_seconds"]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    text, flags = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        pace = on_loopback(folder / "run", text, 20, flags)
        print(f"{'round':>5} {'loopback':>9}" + "".join(f" {rate:>6g} Mbit/s: predicted, measured" for rate in RATES), flush=True)
        rounds = []
        for number in range(ROUNDS):
            loopback = on_loopback(folder / "run", text, max(20, int(SECONDS_EACH / pace)), flags)
            _, sending = simulated(folder / "bench", text, flags, "--devices-per-machine", 2, "--seconds-per-step", 1)
            computing = max(loopback - sending, 0.1 * loopback)
            line = []
            for rate in RATES:
                predicted = sum(simulated(folder / "bench", text, flags, "--devices-per-machine", 1, "--latency", 0, "--link", rate / 1000,
                                          "--seconds-per-step", computing))
                steps = max(12, int(SECONDS_EACH / predicted))
                line.append((predicted, on_line(rate, folder / "run", text, steps, flags)))
            rounds.append(line)
            cells = "".join(f" {1000 * predicted:>18.1f} ms, {1000 * measured:>7.1f} ms" for predicted, measured in line)
            print(f"{number + 1:>5} {1000 * loopback:>6.1f} ms{cells}", flush=True)
        for i, rate in enumerate(RATES):
            predicted, measured = (statistics.median(line[i][column] for line in rounds) for column in range(2))
            print(f"{rate:g} Mbit/s: predicted {1000 * predicted:.1f} ms, measured {1000 * measured:.1f} ms: "
                  f"{100 * (predicted / measured - 1):+.1f} %")


if __name__ == "__main__":
    try:
        main()
    except unittest.SkipTest as reason:
        sys.exit(f"error: {reason}")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"error: {failed}")
