"""Runs the built programs as a user's shell would, for the end-to-end tests."""

import atexit
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

HANGS = 1200  # seconds after which a program hangs: whatever else the machine does, none takes so long

BIN = pathlib.Path(os.environ["GPT_BIN"])
SOURCE = pathlib.Path(os.environ["GPT_SOURCE_DIR"])

# A test that takes long for what it finds; and of the cases of one, the few that the gate takes.
ALL = "GPT_ALL_TESTS" in os.environ
long = unittest.skipUnless(ALL, "it takes long (scripts/test.sh --all runs it)")


def cases(*every, few) -> tuple:
    return every if ALL else few


# Another order of the tests of a class for each value.
ORDER = os.environ.get("GPT_TEST_ORDER")
if ORDER:
    unittest.defaultTestLoader.sortTestMethodsUsing = lambda a, b: -1 if place_of(a) < place_of(b) else 1

# Prepared text is kept here, never in the home of whoever runs the tests.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="gpt-cache-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)


def place_of(test: str) -> str:
    return hashlib.sha256(f"{ORDER} {test}".encode()).hexdigest()


# Enough to learn something in seconds: 2 layers, dropout and accumulation on, so that every random stream is in use.
TINY = {
    "model.n_layer": 2, "model.n_head": 2, "model.n_embd": 32, "model.block_size": 16, "model.dropout": 0.1,
    "training.batch_size": 4, "training.gradient_accumulation_steps": 2, "training.max_steps": 24,
    "training.log_interval": 1, "training.eval_interval": 8, "training.checkpoint_interval": 0,
    "training.learning_rate": 1e-2, "training.use_amp": "false", "threads": 1, "device": "cpu",
}


def write_text(folder: pathlib.Path, sentences: int = 200) -> pathlib.Path:
    path = folder / "text.txt"
    path.write_text("".join(f"{i}: the quick brown fox jumps over the lazy dog.\n" for i in range(sentences)))
    return path


class WithText(unittest.TestCase):
    """Tests that share a folder of their own, `root`, with a `text` in it."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        cls.text = write_text(cls.root)


def flags(options: dict) -> list:
    return [word for key, value in options.items() for word in (f"--{key}", str(value))]


def command(program: str, *words) -> list:
    return [str(BIN / program), *map(str, words)]


def run(program: str, *words, stdin: str = None, check_code: int = None, cwd=None, env=None,
        timeout: float = HANGS) -> subprocess.CompletedProcess:
    source = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    done = subprocess.run(command(program, *words), capture_output=True, text=True, timeout=timeout, cwd=cwd,
                          env={**os.environ, **(env or {})}, **source)
    if check_code is not None and done.returncode != check_code:
        raise AssertionError(f"{program} {' '.join(map(str, words))}: exit {done.returncode}, wanted {check_code}\n"
                             f"{done.stdout}\n{done.stderr}")
    return done


def checks(*words, check_code: int = None) -> dict:
    """What gpt-diagnose found: name -> check, from --json."""
    report = json.loads(run("gpt-diagnose", "--json", *words, check_code=check_code).stdout)
    statuses = [check["status"] for check in report["checks"]]
    assert report["summary"] == {status: statuses.count(status) for status in ("pass", "warn", "fail")}, report
    return {check["name"]: check for check in report["checks"]}


def memory_after_two_steps(*words, field, limit) -> list:
    """Bytes that the kernel counts in this field of gpt-train's status, and of the status of each process that it has started; `limit` is
    called in it before."""
    first = subprocess.Popen(command("gpt-train", *words), stderr=subprocess.PIPE, text=True, preexec_fn=limit)
    for line in first.stderr:
        if re.match(r"step +2/", line):
            break
    children = pathlib.Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    statuses = [pathlib.Path(f"/proc/{pid}/status").read_text() for pid in (first.pid, *children)]
    first.kill()
    first.stderr.close()
    first.wait(timeout=HANGS)
    return [1024 * int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) for status in statuses]


def train(output_dir, text, check_code: int = 0, **options):
    """`options` use __ for the dot: training__max_steps=3."""
    merged = {**TINY, "data.text": text, "output_dir": output_dir}
    merged.update({key.replace("__", "."): value for key, value in options.items()})
    return run("gpt-train", *flags(merged), check_code=check_code)


def metrics(output_dir) -> list:
    return [json.loads(line) for line in (pathlib.Path(output_dir) / "metrics.jsonl").read_text().splitlines()]


def losses(output_dir) -> dict:
    """step -> (loss, grad_norm), and ("val", step) -> validation loss, exactly as written."""
    values = {}
    for record in metrics(output_dir):
        if "val_loss" in record:
            values["val", record["step"]] = record["val_loss"]
        elif "loss" in record:
            values[record["step"]] = (record["loss"], record["grad_norm"])
    return values
