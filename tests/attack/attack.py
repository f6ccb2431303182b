"""Attacks the built programs as crashes, disks and other programs would, and checks that nothing is lost or accepted damaged.

usage: attack.py [KIND ...] [--full] [--rounds N] [--round I] [--seed S]

Without --full, a sample of each kind, which is a test of the suite: under three minutes on two cores. A round depends on nothing
but its kind, its number and the seed; `attack.py KIND --round I` repeats one.
"""

import argparse
import concurrent.futures
import contextlib
import errno
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import traceback

from surroundings import (FAILING_CALLS, RUNS, RUNS_OF_PROCESSES, SIGNALS, Failure, Reference, Round, content_of, expect, expect_nothing_unfinished,
                          expect_same_state, once)


def kills(r: Round):
    """A run that is killed and started again until it ends."""
    r.make_inputs()
    for _ in range(r.random.randint(1, 3)):
        r.disturbed(r.place.start(*r.place.train(r.run)), r.seconds(), lambda process: process.kill())
    r.expect_the_same_end()


def processes(r: Round):
    """One of the processes of a run, or the one that has started them, is killed, stopped or told something, at any time."""
    r.run = r.random.choice(list(RUNS_OF_PROCESSES))

    def strike(launcher):
        tasks = pathlib.Path(f"/proc/{launcher.pid}/task").glob("*/children")
        ranks = [int(pid) for task in tasks for pid in task.read_text().split()]
        # One that is lost before they have met is waited for, as one is that starts late.
        log = r.place.path("run/metrics.jsonl")
        have_met = ranks and log.exists() and log.stat().st_mtime > begun
        rank = r.random.choice(ranks) if have_met else launcher.pid
        pid, number = r.random.choice([(rank, signal.SIGKILL), (rank, signal.SIGKILL), (launcher.pid, signal.SIGKILL),
                                       (rank, signal.SIGSTOP if have_met else signal.SIGKILL),
                                       (r.random.choice([rank, launcher.pid]), r.random.choice(SIGNALS))])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for _ in range(r.random.randint(1, 2)):
        begun = time.time()
        r.disturbed(r.place.start(*r.place.train(r.run)), r.seconds(), strike)
    r.expect_the_same_end()


def signals(r: Round):
    """Signals to a run, a preparation or a generation, at any time, one or two of them."""
    chosen = r.random.choices(SIGNALS, k=r.random.randint(1, 2))
    gap = r.random.choice([0, 0.01, 0.1])

    def send(process):
        for number in chosen:
            process.send_signal(number)
            time.sleep(gap)

    def ended_as_told(process):
        # While the loader maps LibTorch, nothing of ours runs yet, and the system's own answer ends the program.
        codes = {0, *(128 + number for number in chosen if number != signal.SIGUSR1), *(-number for number in chosen if not process.log)}
        expect(process.returncode in codes, f"an exit status of {codes}, and not {process.returncode}", chosen, process.log[-2000:])

    program = r.random.choice(["train", "train", "prepare", "generate"])
    if program == "train":
        r.make_inputs()
        ended_as_told(r.disturbed(r.place.start(*r.place.train(r.run)), r.seconds(), send))
        r.expect_the_same_end()
    elif program == "prepare":
        r.prepare_data()
        r.place.path("more.txt").write_text(r.place.path("text.txt").read_text() * 400)
        words = ["gpt-prepare", "--input", "more.txt", "--tokenizer", "bpe:400", "--output", "data", "--force"]
        ended_as_told(r.disturbed(r.place.start(*words), r.random.uniform(0, 0.6), send))
        r.expect_the_same_data()
    else:
        checkpoint = r.reference.of(r.run).path("run/ckpt.pt")
        words = ["gpt-generate", "--checkpoint", checkpoint, "--output", "written.txt", "12: the", "--max-new-tokens", 3000]
        process = r.disturbed(r.place.start(*words), r.random.uniform(0, 2), send)
        ended_as_told(process)
        written = r.place.path("written.txt")
        expect(process.returncode != 0 or written.stat().st_size >= 3000, "a whole text", process.log[-2000:])
        expect_nothing_unfinished(r.place.folder)


# What the file system answers when a disk, a mount or a limit of the process is at fault.
ERRORS = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EMFILE, errno.ENOMEM, errno.ESTALE, errno.EROFS]


class Scene:
    """A program about to start, its surroundings made, and what must hold in the end."""

    NAMES = ["train", "resume", "prepare", "generate"]

    def __init__(self, name, r: Round):
        self.name, self.r = name, r
        if name == "generate":
            checkpoint = r.reference.of(r.run).path("run/ckpt.pt")
            self.command = ["gpt-generate", "--checkpoint", checkpoint, "--output", "written.txt", "the", "-n", 5]
        elif name == "prepare":
            r.prepare_data()
            self.command = r.place.prepare("--seed", 1)
        else:
            r.make_inputs()
            if name == "resume":
                self.go_back()
            self.command = r.place.train(r.run)

    def go_back(self):
        """To a checkpoint in the middle of the run."""
        run = self.r.place.path("run")
        shutil.copytree(self.r.reference.of(self.r.run).path("run"), run)
        (run / "ckpt_step_00000015.pt").replace(run / "ckpt.pt")
        (run / "ckpt_step_00000020.pt").unlink()
        if json.loads(content_of(run / "ckpt_best.pt")["archive/checkpoint.json"])["values"]["step"] > 15:
            (run / "ckpt_best.pt").unlink()

    def start(self, **faults):
        """`faults`: see failing_calls.cpp."""
        settings = {"files": "run/:data/:cache/:text.txt:short.txt:written", "calls": self.r.place.path("calls"), **faults}
        return self.r.place.run(*self.command, LD_PRELOAD=FAILING_CALLS,
                                **{f"FAULT_{name.upper()}": str(value) for name, value in settings.items()})

    def calls(self) -> int:
        return int.from_bytes(self.r.place.path("calls").read_bytes(), "little")

    def expect_nothing_lost(self, process):
        if "ckpt_rollback_" in process.log:  # one that could not be written or read: it has gone back to another
            self.r.place.must(*self.r.place.train(self.r.run))
            expect_nothing_unfinished(self.r.place.path("run"))
        elif self.name in ("train", "resume"):
            self.r.expect_the_same_end(lines_may_differ="metrics.jsonl" in process.log)
        elif self.name == "prepare":
            self.r.expect_the_same_data()
        else:
            expect(self.r.place.path("written.txt").exists() == (process.returncode == 0), "a text, or none and an error", process.log[-2000:])


@once
def calls_of(reference, name, run) -> int:
    """How many calls on its files the undisturbed program makes."""
    r = Round(reference, reference.folder / f"calls_{name}_{run}", "calls", 0, 0)
    r.run = run
    scene = Scene(name, r)
    scene.start()
    return scene.calls()


def faults(r: Round):
    """One call on a file fails, in any thread; or all from there on."""
    name = r.random.choice(Scene.NAMES)
    calls = calls_of(r.reference, name, r.run)
    scene = Scene(name, r)
    at = 1 + r.number * 997 % calls  # a prime number further every time: enough rounds reach every call
    process = scene.start(at=at, errno=r.random.choice(ERRORS), lasts=r.random.choice([0, 0, 1]))
    scene.expect_nothing_lost(process)


def full_disk(r: Round):
    """The disk is full after some bytes, for everything or for the files that are not the run's state."""
    scene = Scene(r.random.choice(["train", "resume"]), r)
    spared = r.random.choice(["", "run/metrics.jsonl", "run/report.html", "run/samples", "run/train.log"])
    process = scene.start(disk=r.random.randint(0, 2000 if spared else 400_000), **({"files": spared} if spared else {}))
    codes = [0] if spared else [0, 8, 5] if "there is no checkpoint to go back to" in process.log else [0, 8]
    expect(process.returncode in codes, "a run that goes on, or exit 8", spared, process.log[-2000:])
    if spared:
        expect_same_state(r.place.path("run"), r.reference.of(r.run).path("run"))
    else:
        scene.expect_nothing_lost(process)


def flips(r: Round):
    """One bit of a file is flipped while nobody looks."""
    kind = r.random.choice(["checkpoint", "data", "cache", "beside"])
    if kind == "data":
        r.run = "bin"
        r.prepare_data()
        files = sorted(r.place.path("data").iterdir())
    else:
        r.run = "text"
        scene = Scene("resume", r)
        if kind == "cache":
            r.place.must(*r.place.train("text"))
            shutil.rmtree(r.place.path("run"))
            files = sorted(path for path in r.place.path("cache").rglob("*") if path.is_file() and path.stat().st_size)
        else:
            names = ["ckpt.pt"] if kind == "checkpoint" else ["metrics.jsonl", "report.html", "train.log", "effective_config.yaml"]
            files = [r.place.path("run") / name for name in names]
    file = r.random.choice(files)
    original = file.read_bytes()
    bit = r.random.randrange(8 * len(original))
    damaged = bytearray(original)
    damaged[bit // 8] ^= 1 << bit % 8
    file.write_bytes(damaged)
    if kind == "checkpoint":
        process = r.place.run(*r.place.train("text"))
        expect(process.returncode == 4, f"exit 4, and not {process.returncode}", f"bit {bit}", process.log[-2000:])
        # It reads the model alone.
        texts = [r.place.run("gpt-generate", "--checkpoint", of, "the", "-n", 5, "--seed", 1) for of in (file, r.reference.of("text").path("run") / "ckpt_step_00000015.pt")]
        expect(texts[0].returncode == 4 or texts[0].out == texts[1].out, "a refusal, or the text of the whole file", f"bit {bit}", texts[0].log[-2000:])
        return
    process = r.place.run(*r.place.train(r.run))
    if kind == "data":
        expect(process.returncode in (0, 2, 3), "a run, or a refusal of the data", process.log[-2000:])
        file.write_bytes(original)
    else:
        expect(process.returncode == 0, "a run that goes on", f"{file}, bit {bit}", process.log[-2000:])
    if kind == "beside" and file.name == "metrics.jsonl":
        expect_same_state(r.place.path("run"), r.reference.of(r.run).path("run"))
    else:
        r.expect_the_same_end()


HOSTILE = [-1, 0, 1, 7, 2**31, 2**63 - 1, 1e308, 1e-320, "", "x" * 5000, "\u0000", "../../x", None, True, [], {}, [[]] * 100, {"a": {}}]


def mutated(value, random):
    """The JSON value with one of its values replaced, removed or repeated."""
    places = []

    def walk(node):
        if isinstance(node, (dict, list)):
            for key in (list(node) if isinstance(node, dict) else range(len(node))):
                places.append((node, key))
                walk(node[key])

    value = json.loads(json.dumps(value))
    walk(value)
    node, key = random.choice(places)
    how = random.random()
    if how < 0.8:
        node[key] = random.choice(HOSTILE)
    elif how < 0.9:
        del node[key]
    elif isinstance(node, list):
        node.append(node[key])
    return value


def hostile(r: Round):
    """A checkpoint with valid hashes that somebody wrote by hand."""
    good = r.reference.of(r.run).path("run/ckpt.pt")
    records = content_of(good)
    record = r.random.choice(["checkpoint.json", "checkpoint.json", "config.yaml", "config.yaml", "tokenizer.json", "tensor"])
    if record == "tensor":
        record = r.random.choice([name.removeprefix("archive/") for name in records if name.startswith("archive/data/")])
    content = records[f"archive/{record}"]
    if record.endswith(".json"):
        content = json.dumps(mutated(json.loads(content), r.random)).encode()
    elif record.endswith(".yaml"):
        lines = content.decode().splitlines()
        at = r.random.choice([number for number, line in enumerate(lines) if ": " in line])
        lines[at] = lines[at].split(":")[0] + f": {json.dumps(r.random.choice(HOSTILE))}"
        content = "\n".join(lines).encode()
    else:
        content = r.random.choice([b"", content[:-4], content + content, b"\xff" * len(content), r.random.randbytes(len(content))])
    r.place.path("record").write_bytes(content)
    r.place.must("repack_checkpoint", good, "hostile.pt", record, "record")
    generated = r.place.run("gpt-generate", "--checkpoint", "hostile.pt", "the", "-n", 5)
    expect(generated.returncode in (0, 3, 4), "a text or a refusal", record, generated.log[-2000:])
    report = r.place.run("gpt-diagnose", "--checkpoint", "hostile.pt", "--no-probe", "--json", check=False)
    found = {check["name"]: check for check in json.loads(report.out)["checks"]}["checkpoint"]
    expect(found["status"] == "fail" or generated.returncode == 0, "gpt-diagnose to refuse what gpt-generate refuses", record, generated.log, found)


def mapped(r: Round):
    """Files change while a run uses them."""
    r.run = r.random.choice(["bin", "text"])
    r.make_inputs()
    name = "data/tokens_bpe.bin" if r.run == "bin" else "text.txt"
    file = r.place.path(name)
    original, times = file.read_bytes(), file.stat()

    def change(_):
        how = r.random.choice(["truncate", "overwrite", "replace", "remove"])
        if how == "truncate":
            os.truncate(file, r.random.randrange(len(original)))
        elif how == "overwrite":
            with open(file, "r+b") as opened:
                opened.seek(r.random.randrange(len(original)))
                opened.write(r.random.choice([b"\xff\xff", b"\7\0"]) * 1000)
        elif how == "replace":
            file.with_suffix(".new").write_bytes(original[: len(original) // 2])
            file.with_suffix(".new").replace(file)
        else:
            file.unlink()

    process = r.disturbed(r.place.start(*r.place.train(r.run)), r.seconds(), change)
    expect(process.returncode in (0, 2, 3), "a run, or a refusal of the data", process.log[-2000:])
    file.write_bytes(original)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    again = r.place.run(*r.place.train(r.run))
    if again.returncode == 4:  # the change came before the run had looked at its text
        expect("belongs to another run" in again.log, "another run's checkpoint", again.log[-1000:])
    else:
        r.expect_the_same_end()


def shared(r: Round):
    """Two programs at the same files at the same time."""
    what = r.random.choice(["run", "cache", "data"])
    if what == "data":
        commands = [r.place.prepare(), r.place.prepare()]
    else:
        r.run = r.random.choice([name for name in RUNS if name != "bin"])
        r.make_inputs()
        commands = [r.place.train(r.run), r.place.train(r.run, "run" if what == "run" else "other")]
    first = r.place.start(*commands[0])
    time.sleep(r.random.choice([0, r.random.uniform(0, 0.05 if what == "data" else 1)]))
    second = r.place.start(*commands[1])
    for process in (first, second):
        r.place.finish(process)
    codes = sorted([first.returncode, second.returncode])
    allowed = {"run": ([0, 0], [0, 4]), "cache": ([0, 0],), "data": ([0, 0], [0, 2], [0, 3])}[what]
    expect(codes in allowed, f"one at a time in {what}", codes, first.log[-500:], second.log[-500:])
    r.expect_the_same_data() if what == "data" else r.expect_the_same_end()


# What is attacked, the rounds of a sample and of a whole attack.
KINDS = {kills: (8, 150), processes: (3, 100), signals: (10, 336), faults: (30, 5000), full_disk: (8, 500), flips: (16, 25_000), hostile: (20, 5000),
         mapped: (5, 200), shared: (5, 200)}


def attack(kind, numbers, seed, root, reference, run) -> int:
    """Returns how many rounds failed."""
    begin = time.monotonic()

    def one(number):
        folder = root / f"{kind.__name__}_{number}"
        try:
            kind(Round(reference, folder, kind.__name__, number, seed, run))
        except Exception as fault:
            told = fault if isinstance(fault, Failure) else traceback.format_exc()
            return f"attack.py {kind.__name__} --round {number} --seed {seed}{run and f' --run {run!r}'}: expected {told}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    with concurrent.futures.ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0)))) as workers:
        failures = [failure for failure in workers.map(one, numbers) if failure]
    for failure in failures:
        print(failure, end="\n\n")
    print(f"{kind.__name__}: {len(numbers)} rounds, {len(failures)} failed, {time.monotonic() - begin:.0f} s", flush=True)
    return len(failures)


def main():
    names = {kind.__name__: kind for kind in KINDS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(names) + "; all if none is named")
    parser.add_argument("--full", action="store_true", help="hours: " + ", ".join(f"{all_of} {kind.__name__}" for kind, (_, all_of) in KINDS.items()))
    parser.add_argument("--rounds", type=int, help="so many of each kind")
    parser.add_argument("--round", type=int, help="this one alone")
    parser.add_argument("--run", choices=list(RUNS), default="", help="where the kind leaves the choice; any if none is named")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    unknown = [name for name in options.kinds if name not in names]
    if unknown:
        parser.error(f"no such kind: {unknown[0]}; there are {', '.join(names)}")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        reference = Reference(root / "reference")
        for kind in [names[name] for name in options.kinds] or KINDS:
            rounds = options.rounds or KINDS[kind][options.full]
            numbers = [options.round] if options.round is not None else range(rounds)
            failed += attack(kind, numbers, options.seed, root, reference, options.run)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
