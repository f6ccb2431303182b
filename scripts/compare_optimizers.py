"""Called by compare_optimizers.sh, which describes the settings.

1. AdamW trains STEPS updates with each learning rate. The best, by the loss over the whole validation split at the end, must not be at an
   end of the grid: where it is, the grid grows by a factor of two there. So with every other optimizer, at three quarters of STEPS.
2. AdamW trains again with that rate and other seeds; their mean loss is the goal.
3. Each other optimizer trains with its best rate and these seeds, in runs of growing length, each with its whole schedule, because a
   schedule decides what its end has learned. Between the two lengths around the goal, the number of updates is interpolated.
Only losses and numbers of updates are compared, so other programs may run beside it.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

TEXT, FLAGS = sys.argv[1], sys.argv[2:]
STEPS = int(os.environ.get("STEPS", 1000))
RATES = [float(rate) for rate in os.environ.get("RATES", "5e-4 1e-3 2e-3 4e-3 8e-3").split()]
SHARES = sorted(float(share) for share in os.environ.get("SHARES", "0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1").split())
SEEDS = [int(seed) for seed in os.environ.get("SEEDS", "2 3 4").split()]
OPTIMIZERS = os.environ.get("OPTIMIZERS", "muon normuon").split()
MODEL = f"configs/{os.environ.get('MODEL', 'nanogpt_cpu')}.yaml"


def loss_of(out, optimizer, rate, steps, seed):
    """The loss over the whole validation split at the end of such a run; infinite where it diverges."""
    run = out / f"{optimizer}_{rate:g}_{steps}_{seed}"
    words = ["--config", MODEL, "--data.text", TEXT, "--optimizer", optimizer, "--learning_rate", f"{rate:g}", "--min_lr", f"{rate / 10:g}",
             "--max_steps", str(steps), "--warmup_steps", "auto", "--seed", str(seed), "--eval_interval", str(steps), "--eval_batches", "0",
             "--sample_interval", "0", "--checkpoint_interval", "0", "--output_dir", str(run), *FLAGS]
    metrics = run / "metrics.jsonl"
    if not (metrics.exists() and f'"step":{steps},"val_loss"' in metrics.read_text()):
        done = subprocess.run(["build/bin/gpt-train", *words, "--restart"], capture_output=True, text=True)
        if done.returncode != 0 and "not finite" not in done.stderr and "diverge" not in done.stderr:
            sys.exit(f"{' '.join(words)}\n{done.stderr}")
    records = map(json.loads, metrics.read_text().splitlines())
    losses = [record["val_loss"] for record in records if record.get("step") == steps and "val_loss" in record]
    return losses[-1] if losses else float("inf")


def best_rate(out, optimizer, steps):
    losses, rates = {}, sorted(RATES)
    while True:
        for rate in rates:
            if rate not in losses:
                losses[rate] = loss_of(out, optimizer, rate, steps, seed=1)
        best = min(rates, key=losses.get)
        if best not in (rates[0], rates[-1]):
            break
        rates = [best / 2, *rates] if best == rates[0] else [*rates, 2 * best]
    grid = (f"{rate:g} {losses[rate]:.4f}{'*' if rate == best else ''}" for rate in rates)
    print(f"{optimizer:8} {steps} updates:  {'  '.join(grid)}", flush=True)
    return best


def updates_to(goal, out, optimizer, rate):
    """Interpolated; with "at most" where the shortest run reaches it, and None where the longest does not."""
    before = None
    for share in SHARES:
        steps = round(share * STEPS)
        losses = [loss_of(out, optimizer, rate, steps, seed) for seed in SEEDS]
        loss = statistics.mean(losses)
        print(f"{optimizer:8} {steps} updates:  {loss:.4f}  ({', '.join(f'{one:.4f}' for one in losses)})", flush=True)
        if loss <= goal:
            if before is None:
                return "at most ", steps
            return "", before[0] + (steps - before[0]) * (before[1] - goal) / (before[1] - loss)
        before = (steps, loss)
    return None


def main(out):
    rate = best_rate(out, "adamw", STEPS)
    losses = [loss_of(out, "adamw", rate, STEPS, seed) for seed in SEEDS]
    goal = statistics.mean(losses)
    print(f"adamw    {STEPS} updates:  {goal:.4f}  ({', '.join(f'{one:.4f}' for one in losses)}), the goal", flush=True)
    for optimizer in OPTIMIZERS:
        found = updates_to(goal, out, optimizer, best_rate(out, optimizer, round(0.75 * STEPS)))
        if found:
            most, updates = found
            print(f"{optimizer}: the same loss after {most}{updates:.0f} updates, {updates / STEPS:.2f} of AdamW's", flush=True)
        else:
            print(f"{optimizer}: does not reach that loss in {round(SHARES[-1] * STEPS)} updates", flush=True)


if "OUT" in os.environ:
    pathlib.Path(os.environ["OUT"]).mkdir(parents=True, exist_ok=True)
    main(pathlib.Path(os.environ["OUT"]))
else:
    with tempfile.TemporaryDirectory() as folder:
        main(pathlib.Path(folder))
