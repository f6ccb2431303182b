"""Writes tests/tokenizer/bpe_training.json: vocabularies that Hugging Face tokenizers learned, for the tests of the trainer.

usage: .deps/venv/bin/python scripts/make_bpe_fixture.py     (after scripts/setup.sh --tests)
"""

import json
import os
import random

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPLITS = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "llama3": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
}
WORDS = ("the of and to in a is that it was for on are as with his they at be this from I have or by one had not but what all were "
         "banana aaaa aaa aa abababab mississippi l'été où déjà naïve straße Ελλάδα και привет мир не こんにちは 世界 안녕 مرحبا 🙂 👩‍👩‍👧 "
         "if (x == 0) { return -1; } ### ======== 3.14159 1000000 2024 don't I'll we've").split(" ")


def make_text(seed, words):
    rng = random.Random(seed)
    parts = []
    for _ in range(words):
        word = rng.choice(WORDS[: rng.randint(1, len(WORDS))])
        parts.append(rng.choice(["", "", "", "un", "re"]) + word + rng.choice(["", "", "", "s", "ed", "ing", ",", "."]))
        parts.append(rng.choice([" "] * 12 + ["\n", "\n\n", "  ", "\t", "\r\n"]))
    return "".join(parts)


def learn(text, split, vocab_size, min_frequency, special_tokens):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = SPLITS[split]
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=special_tokens,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    ids = model["vocab"]
    merges = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    return {
        "text": text, "split": split, "vocab_size": vocab_size, "min_frequency": min_frequency, "special_tokens": special_tokens,
        "learned_size": len(ids),
        # left, right and their product, by id
        "merges": [[ids[left], ids[right], ids[left + right]] for left, right in merges],
    }


def main():
    cases = [
        learn(make_text(1, 1200), "gpt2", 500, 0, ["<|endoftext|>"]),
        learn(make_text(2, 600), "gpt2", 100_000, 3, ["<pad>", "<|endoftext|>", "###", "aa"]),
        learn(make_text(3, 120), "gpt2", 100_000, 0, []),
        learn(make_text(4, 600), "llama3", 450, 2, ["<|begin_of_text|>", "<|end_of_text|>"]),
    ]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/tokenizer/bpe_training.json")
    with open(path, "w", encoding="ascii") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
