"""Checkpoints as Python reads and compares them, for the end-to-end tests."""

import torch


def load(path) -> dict:
    return torch.load(path, weights_only=True)


def same(a, b) -> bool:
    """Whether two of them, or parts of them, are equal to the bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b
