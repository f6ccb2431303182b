#!/usr/bin/env python3
"""The parts of compare_generation.sh that are Python. No network is used."""

import concurrent.futures
import json
import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TQDM_DISABLE="1")

import torch
import transformers
import xllamacpp

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("GPT_BIN", ROOT / "build" / "bin"))
TOKENS, TEXTS, PROMPT = 64, 16, 512
READ = 123_653_376  # weights that a token's products read: all but the positions
MULTIPLIED = 12 * 12 * 768**2  # weights that every token of a prompt is multiplied by: those of the blocks
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def run(program, *words, **options):
    flags = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    done = subprocess.run([BIN / program, *map(str, words), *flags], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{program} failed: {done.stderr.strip()}")
    return done.stdout


def make_checkpoint(folder):
    """GPT-2 124M after a step with a learning rate of 0."""
    run("gpt-train", config=ROOT / "configs" / "gpt2_124m.yaml", output_dir=folder, device="cpu",
        **{"data.text": ROOT / "data" / "shakespeare.txt", "data.tokenizer": "gpt2", "training.max_steps": 1, "training.batch_size": 1,
           "training.gradient_accumulation_steps": 1, "training.learning_rate": 0, "training.min_lr": 0, "training.warmup_steps": 0,
           "training.eval_interval": 0, "training.checkpoint_interval": 0, "training.sample_interval": 0, "training.memory_check": "false"})


class Reading:
    """Reads as many bytes as a token does, once, from large pages where the system has them."""

    def __init__(self, dtype):
        self.bytes = READ * TYPES[dtype].itemsize
        memory = mmap.mmap(-1, self.bytes)
        memory.madvise(mmap.MADV_HUGEPAGE)
        self.values = torch.frombuffer(memory, dtype=torch.float32).fill_(1)

    def speed(self, passes=5):
        start = time.perf_counter()
        for _ in range(passes):
            self.values.sum()
        return passes * self.bytes / (time.perf_counter() - start) / 1e9


def product_speed(dtype):
    """FLOP/s of a large product of LibTorch's."""
    a = torch.ones(2048, 2048, dtype=TYPES[dtype])
    start = time.perf_counter()
    a @ a
    return 2 * 2048**3 / (time.perf_counter() - start)


class GptGenerate:
    name = "gpt-generate"

    def __init__(self, checkpoint, dtype, threads):
        self.options = {"checkpoint": checkpoint, "dtype": dtype, "device": "cpu", "seed": 1}
        if threads:
            self.options["threads"] = threads

    def written(self, prompt, tokens, texts):
        lines = run("gpt-generate", "--json", prompt, **self.options, **{"max-new-tokens": tokens, "num-samples": texts})
        return [json.loads(line) for line in lines.splitlines()]

    def tokens_per_second(self, texts):
        samples = self.written("Once", TOKENS, texts)
        return sum(sample["tokens"] for sample in samples) / max(sample["seconds"] for sample in samples)

    def prompt_seconds(self, prompt):
        return self.written(prompt, 1, 1)[0]["seconds"]


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, path, threads):
        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel = str(path), TEXTS * 1024, TEXTS
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads or len(os.sched_getaffinity(0))
        params.warmup, params.fit_params, params.verbosity, params.port = True, False, 0, 0
        self.server = xllamacpp.Server(params)

    def complete(self, prompt, tokens, seed):
        body = {"prompt": prompt, "n_predict": tokens, "temperature": 1, "samplers": ["temperature"], "seed": seed, "ignore_eos": True,
                "cache_prompt": False}
        request = urllib.request.Request(self.server.listening_address + "/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def tokens_per_second(self, texts):
        start = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(texts) as pool:
            tokens = sum(answer["tokens_predicted"] for answer in pool.map(lambda seed: self.complete("Once", TOKENS, seed), range(texts)))
        return tokens / (time.perf_counter() - start)

    def prompt_seconds(self, prompt):
        return self.complete(prompt, 1, 0)["timings"]["prompt_ms"] / 1e3


class Transformers:
    name = "transformers"

    def __init__(self, folder, dtype):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=TYPES[dtype]).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def generate(self, prompt, tokens, texts):
        ids = self.tokenizer([prompt] * texts, return_tensors="pt").input_ids
        start = time.perf_counter()
        with torch.inference_mode():
            self.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=True,
                                top_k=0, pad_token_id=0)
        return time.perf_counter() - start

    def tokens_per_second(self, texts):
        return texts * TOKENS / self.generate("Once", TOKENS, texts)

    def prompt_seconds(self, prompt):
        return self.generate(prompt, 1, 1)


def take_turns(rounds, programs, measure, *beside):
    """The figures of each, round by round, behind a first round that does not count."""
    figures = [[] for _ in (*programs, *beside)]
    for _ in range(rounds + 1):
        for of_one, value in zip(figures, [*(measure(program) for program in programs), *(measured() for measured in beside)]):
            of_one.append(value)
    return [of_one[1:] for of_one in figures]


def ratio(ours, theirs):
    return statistics.median(a / b for a, b in zip(ours, theirs))


def compare_speed(rounds, programs, texts, reading):
    *speeds, bandwidth = take_turns(rounds, programs, lambda program: program.tokens_per_second(texts), reading.speed)
    for program, speed in zip(programs, speeds):
        read = [value / texts * reading.bytes / 1e9 for value in speed]
        ours = "" if program is programs[0] else f"; gpt-generate is {ratio(speeds[0], speed):.2f}x as fast"
        print(f"  {texts:>2} text{'s' if texts > 1 else ' '}  {program.name:<12} {statistics.median(speed):7.1f} tokens/s, "
              f"{statistics.median(read):5.1f} GB/s, {100 * ratio(read, bandwidth):3.0f} % of {statistics.median(bandwidth):.1f} GB/s{ours}", flush=True)


def compare_prompt(rounds, programs, dtype, prompt):
    *seconds, product = take_turns(rounds, programs, lambda program: program.prompt_seconds(prompt), lambda: product_speed(dtype))
    for program, of_one in zip(programs, seconds):
        achieved = [2 * MULTIPLIED * PROMPT / value for value in of_one]
        ours = "" if program is programs[0] else f"; gpt-generate is {ratio(of_one, seconds[0]):.2f}x as fast"
        print(f"  prompt    {program.name:<12} {1e3 * statistics.median(of_one):7.0f} ms, {statistics.median(achieved) / 1e9:5.0f} GFLOP/s, "
              f"{100 * ratio(achieved, product):3.0f} % of a large product's{ours}", flush=True)


def compare(dtype, rounds, threads, scratch, prompt):
    print(dtype, flush=True)
    checkpoint, path = scratch / "run", scratch / f"{dtype}.gguf"
    run("gpt-export", checkpoint=checkpoint, format="gguf", output=path, dtype=dtype)
    programs = [GptGenerate(checkpoint, dtype, threads), LlamaCpp(path, threads), Transformers(scratch / "exported", dtype)]
    reading = Reading(dtype)
    for texts in (1, TEXTS):
        compare_speed(rounds, programs, texts, reading)
    compare_prompt(rounds, programs, dtype, prompt)


def main():
    rounds, threads = int(sys.argv[1]) if len(sys.argv) > 1 else 5, int(sys.argv[2]) if len(sys.argv) > 2 else 0
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        scratch = pathlib.Path(folder)
        make_checkpoint(scratch / "run")
        run("gpt-export", checkpoint=scratch / "run", output=scratch / "exported")
        tokenizer = transformers.AutoTokenizer.from_pretrained(scratch / "exported")
        ids = tokenizer((ROOT / "data" / "shakespeare.txt").read_text()[:4 * PROMPT]).input_ids[:PROMPT]
        for dtype in TYPES:
            compare(dtype, rounds, threads, scratch, tokenizer.decode(ids))


if __name__ == "__main__":
    main()
