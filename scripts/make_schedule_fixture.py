#!/usr/bin/env python3
"""Writes tests/fixtures/schedules.json: the learning rates that PyTorch's schedulers give for the schedules of training.lr_schedule.

    python scripts/make_schedule_fixture.py         # with torch, such as .deps/venv/bin/python

Each schedule is a warm-up by LinearLR followed by another of its schedulers. There is none for a decay along 1 - sqrt, which is written out for
LambdaLR. ReduceLROnPlateau sees losses that fall, stand still, become NaN and fall again.
"""

import json
import math
import pathlib
import random

import torch
from torch.optim import lr_scheduler as schedulers

PATH = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "schedules.json"
RATE, LOWEST, WARMUP, STEPS, DECAY = 3e-3, 2e-4, 7, 60, 0.3
BEFORE_DECAY = STEPS - round(DECAY * STEPS)


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)


def rates_of(make_parts, milestones):
    sgd = optimizer()
    warmup = schedulers.LinearLR(sgd, start_factor=1 / (WARMUP + 1), end_factor=1, total_iters=WARMUP)
    schedule = schedulers.SequentialLR(sgd, [warmup, *make_parts(sgd)], milestones)
    rates = []
    for _ in range(STEPS):
        rates.append(sgd.param_groups[0]["lr"])
        sgd.step()
        schedule.step()
    return rates


def constant(sgd, steps):
    return schedulers.ConstantLR(sgd, factor=1, total_iters=steps)


def linear(sgd, steps):
    return schedulers.LinearLR(sgd, start_factor=1, end_factor=LOWEST / RATE, total_iters=steps)


def by_root(sgd, steps):
    return schedulers.LambdaLR(sgd, lambda step: LOWEST / RATE + (1 - LOWEST / RATE) * (1 - math.sqrt(step / steps)))


def plateau(patience, cooldown):
    sgd, draw = optimizer(), random.Random(5)
    schedule = schedulers.ReduceLROnPlateau(sgd, factor=0.4, patience=patience, threshold=0.01, cooldown=cooldown, min_lr=LOWEST)
    losses, rates = [], []
    for i in range(40):
        falling = 4 - 0.1 * min(i, 8) - (0.5 if i > 30 else 0)
        losses.append(math.nan if i in (12, 26) else falling + 0.02 * draw.random())
        schedule.step(losses[-1])
        rates.append(sgd.param_groups[0]["lr"])
    return {"patience": patience, "cooldown": cooldown, "losses": [None if math.isnan(x) else x for x in losses], "rates": rates}


def main():
    rest, decay = STEPS - WARMUP, STEPS - BEFORE_DECAY
    fixture = {
        "learning_rate": RATE, "min_lr": LOWEST, "warmup_steps": WARMUP, "max_steps": STEPS, "decay_fraction": DECAY,
        "plateau_factor": 0.4, "plateau_threshold": 0.01,
        "rates": {
            "cosine": rates_of(lambda sgd: [schedulers.CosineAnnealingLR(sgd, T_max=rest, eta_min=LOWEST)], [WARMUP]),
            "constant": rates_of(lambda sgd: [constant(sgd, rest)], [WARMUP]),
            "linear": rates_of(lambda sgd: [linear(sgd, rest)], [WARMUP]),
            "wsd linear": rates_of(lambda sgd: [constant(sgd, rest), linear(sgd, decay)], [WARMUP, BEFORE_DECAY]),
            "wsd 1-sqrt": rates_of(lambda sgd: [constant(sgd, rest), by_root(sgd, decay)], [WARMUP, BEFORE_DECAY]),
        },
        "plateau": [plateau(*case) for case in ((2, 0), (0, 3), (5, 1))],
    }
    PATH.write_text(json.dumps(fixture) + "\n")


if __name__ == "__main__":
    main()
