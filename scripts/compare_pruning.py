"""Called by compare_pruning.sh, which describes the settings.

For each seed a large model is trained for STEPS updates, and gpt-prune makes two smaller ones of it, by importance and by chance, which
are trained for RECOVERY updates more; the first one of them also towards the large model. Another one of the same size begins with drawn
weights and is trained for as many. The learning rate of each of them is the best of RATES for the first seed. The loss is that over the whole validation split; gpt-prune reads the text
itself. Loss and standard error are over the seeds.

The speed is the CPU time of an update on one thread: that of a long run less that of a short one, divided by the updates that it has more.
Large and small models alternate, so that other programs may run beside it; the ratio is the median of all rounds.
"""

import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

import torch

TEXT, FLAGS = sys.argv[1], sys.argv[2:]
AMOUNTS = shlex.split(os.environ.get("AMOUNTS", "--mlp 25% --heads 1 --layers 1"))
STEPS, RECOVERY = int(os.environ.get("STEPS", 2000)), int(os.environ.get("RECOVERY", 200))
RATES = [float(rate) for rate in os.environ.get("RATES", "2.5e-4 5e-4 1e-3 2e-3 4e-3 8e-3 1.6e-2").split()]
SEEDS = [int(seed) for seed in os.environ.get("SEEDS", "1 2 3").split()]
ROUNDS = int(os.environ.get("ROUNDS", 5))
MODEL = f"configs/{os.environ.get('MODEL', 'nanogpt_cpu')}.yaml"
ARMS = {"importance": "pruned by importance", "taught": "pruned, with a teacher", "random": "pruned by chance", "scratch": "from scratch"}


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, words))}\n{done.stderr}")
    return done.stdout


def flags(settings):
    return [word for key, value in settings.items() for word in (f"--{key}", str(value).lower() if isinstance(value, bool) else value)]


def train(folder, steps, rate, seed, settings, **others):
    run("build/bin/gpt-train", *flags({**settings, "data.text": TEXT, "training.max_steps": steps, "training.learning_rate": f"{rate:g}",
                                       "training.min_lr": f"{rate / 10:g}", "training.warmup_steps": "auto", "training.eval_batches": 0,
                                       "training.sample_interval": 0, "training.checkpoint_interval": 0, "training.eval_interval": steps,
                                       "seed": seed, "threads": 1, "output_dir": folder, **others}), *FLAGS, "--restart")


def loss_of(folder, steps, rate, seed, settings):
    """The validation loss at the end of such a run."""
    metrics = folder / "metrics.jsonl"
    if not (metrics.exists() and f'"step":{steps},"val_loss"' in metrics.read_text()):
        train(folder, steps, rate, seed, settings)
    records = map(json.loads, metrics.read_text().splitlines())
    return [record["val_loss"] for record in records if record.get("step") == steps and "val_loss" in record][-1]


def settings_of(folder, *sections):
    """The keys of a checkpoint's configuration that a new run may have too, but for those that are flags of this script."""
    config = torch.load(folder / "ckpt.pt", weights_only=True)["config"]
    given = {flag.lstrip("-").split("=")[0].split(".")[-1] for flag in FLAGS if flag.startswith("--")}
    skipped = {"resume_from", "init_from", "distill_from", "preset", "vocab_size", *given}
    return {f"{section}.{key}": value for section in sections for key, value in config[section].items()
            if value is not None and value != "" and key not in skipped}


def begun(out, seed):
    """The loss of the large model, and for each of the small ones what its run begins with."""
    large = out / f"large_{seed}"
    loss = loss_of(large, STEPS, 1e-3, seed, {"config": MODEL})
    training = settings_of(large, "training", "data")
    arms = {}
    for choice in ("importance", "random"):
        smaller = out / f"{choice}_{seed}"
        if not smaller.exists():
            run("build/bin/gpt-prune", "--checkpoint", large, "--data", TEXT, *AMOUNTS, "--choice", choice, "--seed", seed, "--threads", 1,
                "--device", "cpu", "--output", smaller)
        arms[choice] = {**training, "training.init_from": smaller}
    arms["taught"] = {**arms["importance"], "training.distill_from": large}
    arms["scratch"] = {**training, **settings_of(out / f"importance_{seed}", "model")}
    return loss, arms


def described(losses):
    error = statistics.stdev(losses) / math.sqrt(len(losses)) if len(losses) > 1 else 0
    return f"{statistics.mean(losses):.4f} ± {error:.4f}  ({', '.join(f'{loss:.4f}' for loss in losses)})"


def compare_losses(out):
    large, arms = zip(*(begun(out, seed) for seed in SEEDS))
    print(f"{'the large model':22} {STEPS} updates:  {described(large)}", flush=True)
    for arm, name in ARMS.items():
        def loss(rate, i):
            return loss_of(out / f"{arm}_{SEEDS[i]}_{RECOVERY}_{rate:g}", RECOVERY, rate, SEEDS[i], arms[i][arm])
        grid = {rate: loss(rate, 0) for rate in RATES}
        rate = min(grid, key=grid.get)
        print(f"{name:22} {RECOVERY} updates:  {described([loss(rate, i) for i in range(len(SEEDS))])}  learning rate {rate:g}"
              f"{', at an end of the grid' if rate in (min(RATES), max(RATES)) else ''}", flush=True)


def cpu_seconds(action):
    before = os.times()
    action()
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def update_seconds(folder, settings):
    short, long = 20, 220
    seconds = [cpu_seconds(lambda: train(folder, steps, 1e-3, 1, settings, **{"training.eval_interval": 0})) for steps in (short, long)]
    return (seconds[1] - seconds[0]) / (long - short)


def compare_speeds(out):
    models = {name: settings_of(out / f"{folder}_{SEEDS[0]}", "model", "training", "data")
              for name, folder in {"large": "large", "small": "importance"}.items()}
    times = [{name: update_seconds(out / "timed", settings) for name, settings in models.items()} for _ in range(ROUNDS)]
    for name in models:
        print(f"{name} model: {1000 * statistics.median(one[name] for one in times):.2f} ms of CPU time an update", flush=True)
    ratios = [one["small"] / one["large"] for one in times]
    print(f"the small one takes {statistics.median(ratios):.3f} of the large one's ({', '.join(f'{ratio:.3f}' for ratio in ratios)})", flush=True)
    report = run("build/bin/gpt-prune", "--checkpoint", out / f"large_{SEEDS[0]}", "--data", TEXT, *AMOUNTS, "--sequences", 1, "--threads", 1,
                 "--device", "cpu", "--output", pathlib.Path(tempfile.mkdtemp(dir=out)) / "again.pt")
    print("\n".join(line for line in report.splitlines() if "parameters" in line or "training a token" in line), flush=True)


def main(out):
    compare_losses(out)
    if ROUNDS > 0:
        compare_speeds(out)


if "OUT" in os.environ:
    pathlib.Path(os.environ["OUT"]).mkdir(parents=True, exist_ok=True)
    main(pathlib.Path(os.environ["OUT"]))
else:
    with tempfile.TemporaryDirectory() as folder:
        main(pathlib.Path(folder))
