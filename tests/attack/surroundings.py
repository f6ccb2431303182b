"""Where attacks take place: folders in which the built programs run, and what has to hold of what they leave."""

import functools
import json
import os
import pathlib
import random
import shlex
import signal
import subprocess
import threading
import time
import zipfile

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"
BIN = pathlib.Path(os.environ.get("GPT_BIN", BUILD / "bin"))
FAILING_CALLS = os.environ.get("GPT_FAILING_CALLS", str(BUILD / "tests" / "libfailing_calls.so"))
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1]
ENDINGS = {0, 2, 3, 4, 5, 6, 7, 8, 9, 129, 130, 143}  # src/run/README.md, "Exit status"; 1 is an unexpected error

OPTIONS = {
    "model.n_layer": 1, "model.n_head": 2, "model.n_embd": 16, "model.block_size": 16, "model.dropout": 0.1,
    "training.batch_size": 4, "training.gradient_accumulation_steps": 2, "training.max_steps": 24, "training.warmup_steps": 2,
    "training.log_interval": 1, "training.eval_interval": 7, "training.checkpoint_interval": 5, "training.keep_last": 2,
    "training.sample_interval": 10, "training.sample_tokens": 8, "training.learning_rate": 1e-2, "training.use_amp": "false",
    "threads": 1, "device": "cpu",
}
# Runs that differ in what a resume has to find again.
RUNS = {
    "text": {"data.text": "text.txt"},
    "epochs": {"data.text": "short.txt"},
    "order": {"data.text": "text.txt", "data.order": "simpler_first"},
    "stages": {"data.text": "text.txt", "data.stages": "[{from: 0, block_size: 8}, {from: 6, mix: {main: 1, short.txt: 2}}, "
                                                       "{from: 15, block_size: 12, mix: {short.txt: 1}}]"},
    "background": {"data.text": "text.txt", "training.async_checkpoint": "true"},
    "going back": {"data.text": "text.txt", "data.stages": "[{from: 0}, {from: 12, mix: {noise.txt: 1}}, {from: 14}]",
                   "training.on_divergence": "rollback", "training.spike_window": 8, "training.spike_threshold": 12,
                   "training.rollback_lr_factor": 0.9, "training.lr_schedule": "constant", "training.async_checkpoint": "true"},
    "bin": {"data.bin": "data/tokens_bpe.bin", "data.metadata": "data/tokens_bpe_metadata.json"},
    "conversations": {"data.text": "chats.jsonl", "model.block_size": 48},
}
CHAT_TEMPLATE = "{% for message in messages %}{{ message.role[0] ~ ': ' ~ message.content ~ '\\n' }}{% endfor %}{% if add_generation_prompt %}a: {% endif %}"
# Runs of several processes; with lanes, what they write does not depend on who computes what.
_TWO = {"data.text": "text.txt", "distributed.processes": 2, "distributed.lanes": 4, "distributed.timeout": 2}
RUNS_OF_PROCESSES = {
    "two": _TWO,
    "restarted": {**_TWO, "distributed.restarts": 2},
    "zero": {**_TWO, "distributed.zero": 1, "distributed.restarts": 1},
    "zero_2": {**_TWO, "distributed.zero": 2, "distributed.restarts": 1},
    "zero in the background": {**_TWO, "distributed.zero": 1, "distributed.restarts": 1, "training.async_checkpoint": "true"},
    "whole matrices": {**_TWO, "distributed.zero": 1, "distributed.restarts": 1, "training.optimizer": "muon"},
}


class Failure(AssertionError):
    pass


def expect(holds, what, *evidence):
    if not holds:
        raise Failure("\n".join([what, *map(str, evidence)]))


class Place:
    """A folder with the inputs of every run, in which programs are started; names are relative, so that runs in different places
    write the same bytes."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.talker = None  # a model of Hugging Face's form with a chat template, where a run begins with one
        folder.mkdir(parents=True)
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
        sentences = [f"{i * 7919 % 1000}: the quick brown fox jumps over the lazy dog.\n" for i in range(200)]
        (folder / "text.txt").write_text("".join(sentences))
        (folder / "short.txt").write_text("".join(sentences[:30]))
        text = "".join(sentences)
        rare = sorted(set(text), key=lambda c: (text.count(c), c))[:4]  # what makes the loss jump
        (folder / "noise.txt").write_text("".join(random.Random(3).choices(rare, k=len(text))))
        dialogues = [[{"role": "user", "content": sentence[:5 + 7 * i % 30]}, {"role": "assistant", "content": sentence[-5 - 3 * i % 20:-1]}]
                     for i, sentence in enumerate(sentences)]
        (folder / "chats.jsonl").write_text("".join(json.dumps({"messages": dialogue}) + "\n" for dialogue in dialogues))

    def path(self, name) -> pathlib.Path:
        return self.folder / name

    def start(self, program, *words, **environment) -> subprocess.Popen:
        return subprocess.Popen([str(BIN / program), *map(str, words)], cwd=self.folder, env={**self.environment, **environment},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")

    def finish(self, process, check=True) -> subprocess.Popen:
        """Waits. However a program ends, it says why in the way that src/run/README.md promises."""
        process.out, process.log = process.communicate(timeout=240)
        code = process.returncode
        if check and code != -signal.SIGKILL:
            expect(code in ENDINGS or -code in SIGNALS, f"an exit status of src/run/README.md, and not {code}", shlex.join(process.args), process.log[-3000:])
        if check and 0 < code < 100:
            last = process.log.splitlines()[-1] if process.log else ""
            expect(last.startswith("error: ") and len(last) <= 2000, "one line that says what is wrong", shlex.join(process.args), process.log[-3000:])
        return process

    def run(self, program, *words, check=True, **environment) -> subprocess.Popen:
        return self.finish(self.start(program, *words, **environment), check)

    def must(self, program, *words):
        process = self.run(program, *words)
        expect(process.returncode == 0, f"{program} to succeed, and not {process.returncode}", shlex.join(process.args), process.log[-3000:])

    def prepare(self, *words):
        return ["gpt-prepare", "--input", "text.txt", "--tokenizer", "byte", "--output", "data", *words]

    def train(self, run, output_dir="run"):
        options = {**OPTIONS, **{**RUNS, **RUNS_OF_PROCESSES}[run], "output_dir": output_dir}
        if self.talker:
            options["training.init_from"] = self.talker
            for size in ("model.n_layer", "model.n_head", "model.n_embd"):
                del options[size]
        return ["gpt-train", *(word for key, value in options.items() for word in (f"--{key}", value))]


def once(function):
    """Remembers results, and lets one thread at a time make them."""
    lock, cached = threading.RLock(), functools.cache(function)

    def call(*words):
        with lock:
            return cached(*words)

    return call


class Reference:
    """What the undisturbed programs write."""

    def __init__(self, folder):
        self.folder = folder

    @once
    def talker(self) -> pathlib.Path:
        """One for all places, because a checkpoint has the whole path of what its run began with."""
        place = Place(self.folder / "before")
        place.must(*place.train("text", "before"), "--data.tokenizer", "byte", "--training.max_steps", 3, "--model.block_size", 48)
        place.must("gpt-export", "--checkpoint", "before", "--output", "talker")
        (place.path("talker") / "chat_template.jinja").write_text(CHAT_TEMPLATE)
        return place.path("talker")

    @once
    def of(self, run) -> Place:
        place = Place(self.folder / run)
        place.must(*place.prepare())
        if run == "conversations":
            place.talker = self.talker()
        begin = time.monotonic()
        place.must(*place.train(run))
        place.seconds = time.monotonic() - begin
        return place


class Round:
    def __init__(self, reference: Reference, folder, kind, number, seed, run=""):
        self.number = number
        self.random = random.Random(f"{kind} {number} {seed}")
        self.reference = reference
        self.place = Place(folder)
        chosen = self.random.choice(list(RUNS))
        self.run = run or chosen

    def prepare_data(self):
        self.place.must(*self.place.prepare())

    def make_inputs(self):
        """What the run reads besides its texts."""
        if self.run == "bin":
            self.prepare_data()
        if self.run == "conversations":
            self.place.talker = self.reference.talker()

    def seconds(self, least=0.0):
        """A moment at which the run is at work, or nearly."""
        return self.random.uniform(least, 1.1 * self.reference.of(self.run).seconds)

    def disturbed(self, process, after, act):
        """What `act(process)` does at `after` seconds, if the program is still there."""
        try:
            process.wait(timeout=after)
        except subprocess.TimeoutExpired:
            act(process)
        return self.place.finish(process)

    def expect_the_same_end(self, lines_may_differ=False):
        """The run goes on undisturbed, and ends byte for byte where one ends that was never disturbed."""
        self.place.must(*self.place.train(self.run))
        run, wanted = self.place.path("run"), self.reference.of(self.run).path("run")
        expect_same_state(run, wanted)
        got, want = losses(run), losses(wanted)
        # Where metrics.jsonl could not be written, lines may be missing, or be there twice; a line has said so.
        expect(set(got) <= set(want) if lines_may_differ else got == want, "every logged loss once, and the same",
               [line for line in got if line not in want], [line for line in want if line not in got])
        expect_nothing_unfinished(run)

    def expect_the_same_data(self):
        self.place.must(*self.place.prepare())
        expect_same_files(self.place.path("data"), self.reference.of("bin").path("data"))


def losses(run) -> list:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line.get("loss"), line.get("val_loss")) for line in lines]


def content_of(checkpoint) -> dict:
    with zipfile.ZipFile(checkpoint) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def expect_same_state(run, wanted):
    for name in ("ckpt.pt", "ckpt_best.pt"):
        got, want = content_of(run / name), content_of(wanted / name)
        differing = [record for record in want if got.get(record) != want[record]]
        expect(not differing, f"{name} to be the same", run, differing)


def expect_same_files(folder, wanted):
    names = sorted(path.name for path in wanted.iterdir())
    expect(sorted(path.name for path in folder.iterdir()) == names, f"the files {names}", list(folder.iterdir()))
    for name in names:
        expect((folder / name).read_bytes() == (wanted / name).read_bytes(), f"{name} to be the same")


def expect_nothing_unfinished(folder):
    leftovers = [str(path) for path in folder.rglob("*") if ".tmp-" in path.name]
    expect(not leftovers, "no unfinished files", leftovers)
