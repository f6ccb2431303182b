#!/usr/bin/env python3
"""The part of compare_learning_rates.sh that runs and compares."""

import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import tempfile

DEFAULT = 1e-3
GRID = [2.5e-4 * 2**i for i in range(8)]
VALIDATION_SEQUENCES = 960


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", required=True)
    parser.add_argument("--sizes", nargs="+", required=True)
    parser.add_argument("--batches", nargs="+", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seeds", nargs="+", type=int, required=True)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("flags", nargs="*")
    return parser.parse_args()


class Runs:
    """Runs of gpt-train, each made once."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.known = {}
        if arguments.results.exists():
            for line in arguments.results.read_text().splitlines():
                run = json.loads(line)
                self.known[run["key"]] = run["value"]

    def keep(self, key, value):
        self.known[key] = value
        with self.arguments.results.open("a") as file:
            file.write(json.dumps({"key": key, "value": value}) + "\n")
        return value

    def command(self, size, batch, seed, folder):
        layers, width = size.split("x")
        a = self.arguments
        return ["build/bin/gpt-train", "--data.text", a.text, "--tokenizer", "char", "--n_layer", layers, "--n_head", str(int(width) // 32),
                "--n_embd", width, "--block_size", "64", "--batch_size", str(batch), "--max_steps", str(a.steps), "--eval_interval",
                str(a.steps), "--eval_batches", str(VALIDATION_SEQUENCES // batch), "--checkpoint_interval", "0", "--seed", str(seed),
                "--output_dir", folder, *a.flags]

    def start(self, command):
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode not in (0, 5):  # 5: it diverged
            raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
        return done

    def loss(self, size, batch, seed, rate):
        key = f"{size} {batch} {self.arguments.steps} {seed} {rate:.4g} {' '.join(self.arguments.flags)}"
        if key in self.known:
            return self.known[key]
        with tempfile.TemporaryDirectory() as folder:
            self.start(self.command(size, batch, seed, folder) + ["--learning_rate", f"{rate:.6g}"])
            records = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
        losses = [record["val_loss"] for record in records if record.get("val_loss") is not None]
        return self.keep(key, losses[-1] if losses else math.inf)

    def pick(self, size, batch, seed):
        key = f"pick {size} {batch} {self.arguments.steps} {seed} {' '.join(self.arguments.flags)}"
        if key in self.known:
            return self.known[key]
        with tempfile.TemporaryDirectory() as folder:
            done = self.start(self.command(size, batch, seed, folder) + ["--find-lr"])
        return self.keep(key, float(re.search(r"Learning rate ([\d.e-]+): ", done.stderr).group(1)))


def main():
    arguments = parse()
    runs = Runs(arguments)
    good, better, count = 0, True, 0
    print(f"{'model':8} {'batch':>5} {'seed':>4}  " + " ".join(f"{rate:>7.3g}" for rate in GRID) + "     pick    loss  to best  default")
    for size in arguments.sizes:
        for batch in arguments.batches:
            excesses = []
            for seed in arguments.seeds:
                losses = [runs.loss(size, batch, seed, rate) for rate in GRID]
                rate = runs.pick(size, batch, seed)
                loss, best, default = runs.loss(size, batch, seed, rate), min(losses), runs.loss(size, batch, seed, DEFAULT)
                excesses.append(loss / best - 1)
                better = better and (default <= 1.02 * best or loss < default)
                print(f"{size:8} {batch:5} {seed:4}  " + " ".join(f"{x:7.4f}" for x in losses) +
                      f"  {rate:7.2g} {loss:7.4f} {100 * excesses[-1]:+7.2f}% {100 * (default / best - 1):+7.2f}%", flush=True)
            count += 1
            good += statistics.median(excesses) <= 0.01
    print(f"within 1 % of the best of eight rates: {good} of {count}; better than {DEFAULT:g} wherever that is more than 2 % off: "
          f"{'yes' if better else 'no'}")


if __name__ == "__main__":
    main()
