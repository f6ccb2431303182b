"""A run of several processes that goes on while a test does something to one of them."""

import pathlib
import subprocess
import time

import programs


def begin(test, folder, text, **options):
    """gpt-train with these options beside TINY, where __ stands for a dot; the test ends it."""
    merged = {**programs.TINY, "data.text": text, "output_dir": folder}
    merged.update({key.replace("__", "."): value for key, value in options.items()})
    run = subprocess.Popen(programs.command("gpt-train", *programs.flags(merged)), stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    test.addCleanup(run.stderr.close)
    test.addCleanup(run.wait)
    test.addCleanup(run.kill)
    return run


def children_of(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def by_rank(run):
    """The PIDs of a run's processes."""
    def rank_of(pid):
        variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return int(next(v for v in variables if v.startswith(b"RANK=")).split(b"=")[1])
    return {rank_of(pid): pid for pid in children_of(run.pid)}


def await_checkpoint(test, folder, run):
    """Until the run has saved something; then its processes by rank."""
    while not (folder / "ckpt.pt").exists():
        test.assertIsNone(run.poll(), run.stderr.read() if run.poll() is not None else "")
        time.sleep(0.05)
    return by_rank(run)
