"""Trains BPE with this project's trainer, with Hugging Face tokenizers and, where they are installed, gigatoken and rustbpe; compares the results and
the times.

usage: scripts/compare_bpe_training.sh, which calls this
"""

import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

from compare_tokenizers import byte_letters

SPECIAL = "<|endoftext|>"
GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DISTINCT_WORDS = 600_000
SENTENCE_WORDS = 16


def make_words(rng):
    """Distinct words of one to five syllables, the short ones first, as frequent words are."""
    starts = "b c d f g h j k l m n p r s t v w z ch sh th st tr pl".split()
    vowels, ends = "a e i o u ea ou".split(), ["", "", "n", "r", "s", "l", "t"]
    syllables = [start + vowel + end for start in starts for vowel in vowels for end in ends]
    words = {}
    while len(words) < DISTINCT_WORDS:
        length = 1 + min(4, len(words) * 6 // DISTINCT_WORDS + int(rng.integers(0, 2)))
        words["".join(syllables[i] for i in rng.integers(0, len(syllables), length))] = None
    return list(words)


def write_text(path, megabytes):
    """Sentences of words by Zipf's law, with capitals, punctuation, numbers and line ends; the same text for the same size."""
    rng = np.random.default_rng(1)
    words = make_words(rng)
    shares = np.cumsum(1.0 / (np.arange(len(words)) + 2.7) ** 1.05)
    ends = np.array([". ", ".\n", "? ", "!\n", ", ", "; ", ": "])
    size = 0
    with open(path, "w", encoding="ascii", newline="") as file:
        while size < megabytes << 20:
            picked = np.searchsorted(shares, rng.random((10_000, SENTENCE_WORDS)) * shares[-1])
            numbers = rng.integers(0, 3000, 10_000)
            lines = [
                " ".join(words[i] for i in row).capitalize() + (f" {number}" if number < 600 else "") + end
                for row, number, end in zip(picked.tolist(), numbers.tolist(), ends[rng.integers(0, len(ends), 10_000)])
            ]
            size += file.write("".join(lines))


def documents(text):
    """The text in parts of 64 KiB and more, cut before white space that follows something else: a piece ends there."""
    boundary, parts, begin = re.compile(r"(?<=\S)(?=\s)"), [], 0
    while begin < len(text):
        found = boundary.search(text, begin + 65536)
        end = found.start() if found else len(text)
        parts.append(text[begin:end])
        begin = end
    return parts


def train_hugging_face(path, vocab_size):
    """Returns the vocabulary with the merges, and the time that training took, without reading the file."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    with open(path, encoding="utf-8", newline="") as file:
        parts = documents(file.read())
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=[SPECIAL], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    wall, cpu = time.perf_counter(), cpu_seconds()
    tokenizer.train_from_iterator(parts, trainer)
    spent = spent_since(wall, cpu)
    model = json.loads(tokenizer.to_str())["model"]
    return model, spent


def train_gigatoken(path, vocab_size):
    """Its merges, which it makes by Hugging Face's rule for ties, and the time, reading the file included."""
    import gigatoken

    wall, cpu = time.perf_counter(), cpu_seconds()
    _, merges = gigatoken.train_bpe(path, vocab_size, [SPECIAL])
    return [b"".join(pair) for pair in merges], spent_since(wall, cpu)


def train_rustbpe(path, vocab_size):
    import rustbpe

    with open(path, encoding="utf-8", newline="") as file:
        parts = documents(file.read())
    tokenizer = rustbpe.Tokenizer()
    wall, cpu = time.perf_counter(), cpu_seconds()
    tokenizer.train_from_iterator(parts, vocab_size - 1, pattern=GPT2_SPLIT)
    spent = spent_since(wall, cpu)
    return [bytes(token) for token, rank in tokenizer.get_mergeable_ranks() if rank > 255], spent


def spent_since(wall, cpu):
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": cpu_seconds() - cpu}


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def train_ours(trainer, path, vocab_size, threads):
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        command = [trainer, path, str(vocab_size), "0", str(threads), result.name]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        return json.load(result)["model"], json.loads(output)


def merges_of(model):
    return [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]


def check_equal(ours, theirs):
    for i, (mine, other) in enumerate(zip(merges_of(ours), merges_of(theirs))):
        if mine != other:
            sys.exit(f"merge {i} differs: ours is {mine!r}, Hugging Face's is {other!r}")
    if len(ours["merges"]) != len(theirs["merges"]):
        sys.exit(f"{len(ours['merges'])} merges, Hugging Face has {len(theirs['merges'])}")
    if ours["vocab"] != theirs["vocab"]:
        sys.exit("the merges are the same, the ids differ")


@contextlib.contextmanager
def silent():
    """What gigatoken prints from Rust goes nowhere."""
    kept = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for target in (1, 2):
        os.dup2(nowhere, target)
    try:
        yield
    finally:
        for target, descriptor in zip((1, 2), kept):
            os.dup2(descriptor, target)


def first_difference(ours, theirs):
    """In words: at which merge another trainer parts from ours, and how many of the tokens are the same in the end."""
    letters = byte_letters()
    mine = [merge.replace(" ", "") for merge in merges_of(ours)]
    other = ["".join(letters[value] for value in token) for token in theirs]
    at = next((i for i, pair in enumerate(zip(mine, other)) if pair[0] != pair[1]), None)
    if at is None:
        return "the same merges"
    return f"another merge from {at} on, {len(set(mine) & set(other)):,} of {len(mine):,} tokens the same"


def compare(name, trainer, path, vocab_size):
    """The CPU seconds of each other trainer over ours."""
    ours, spent = train_ours(trainer, path, vocab_size, 1)
    theirs, spent_there = train_hugging_face(path, vocab_size)
    check_equal(ours, theirs)
    line = (f"{name}: {len(ours['merges'])} merges and all ids are the same; CPU seconds: ours {spent['cpu_seconds']:.2f}, "
            f"Hugging Face {spent_there['cpu_seconds']:.2f}")
    ratios = {"Hugging Face": spent_there["cpu_seconds"] / spent["cpu_seconds"]}
    for program, train in (("gigatoken", train_gigatoken), ("rustbpe", train_rustbpe)):
        try:
            with silent():
                merges, spent_there = train(path, vocab_size)
        except ImportError:
            continue
        line += f", {program} {spent_there['cpu_seconds']:.2f} ({first_difference(ours, merges)})"
        ratios[program] = spent_there["cpu_seconds"] / spent["cpu_seconds"]
    print(line, flush=True)
    return ratios


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "words.txt")
        if options.large:
            write_text(path, 1024)
            merges = 50_000
            _, spent = train_ours(options.trainer, path, 257 + merges, os.cpu_count())
            print(f"1 GB, {merges} merges, {os.cpu_count()} threads: {spent['seconds']:.1f} s, {spent['counting_seconds']:.1f} "
                  f"of them for counting; {spent['cpu_seconds']:.1f} s of CPU time; peak memory {spent['peak_mb']} MB")
            return
        corpus = compare("default corpus, vocabulary 8192", options.trainer, "data/shakespeare.txt", 8192)
        write_text(path, 200)
        words = compare("200 MB of generated words, vocabulary 32768", options.trainer, path, 32768)
    print("ratio " + ", ".join(f"{corpus[program]:.1f}x {program} on the default corpus, {words[program]:.1f}x on the generated words"
                               for program in corpus))


if __name__ == "__main__":
    main()
