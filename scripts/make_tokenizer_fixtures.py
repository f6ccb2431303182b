#!/usr/bin/env python3
"""Writes tests/tokenizer/hugging_face/: small vocabularies as Hugging Face tokenizers writes them, and the ids it produces.

    python scripts/make_tokenizer_fixtures.py     # with tokenizers==0.23.3; rewrites the same bytes every time
"""

import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "tokenizer" / "hugging_face"

TEXT = ["To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer the slings and arrows.",
        "He'll say they're here; we've 1234 of them, I'm sure it's 56789!  Tabs\tand\n\n  lines.",
        "Käse, naïve façade, Москва, 東京, 🙂🙂 and a\u00a0hard space."] * 3
SAMPLES = TEXT[:3] + ["", " ", "\n\n \t x", "the<|endoftext|>question<|endoftext|>", "THEY'RE they're 12345 67",
                      "unseen: \u0001 \u00ff \U0010ffff", "  lines.\r\n\r\n"]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def train(pre_tokenizer, specials):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=320, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return tokenizer


def gpt2():
    return train(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])


def llama3():
    """Like Llama 3's: special tokens after the vocabulary and not in it, whole pieces first, a token before every text."""
    trained = json.loads(train(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), []).to_str())
    vocabulary = trained["model"]["vocab"]
    vocabulary["Ġquestion"] = len(vocabulary)  # no merge produces it; it is found only as a whole piece
    trained["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(trained))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in ("<|begin_of_text|>", "<|endoftext|>")])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", begin)])
    return tokenizer


def encoded(tokenizer):
    """The ids with special tokens as ordinary text, and with them parsed; without what the post-processor adds."""
    for text in SAMPLES:
        ids = {}
        for name, ordinary in (("ids", True), ("ids_with_specials", False)):
            tokenizer.encode_special_tokens = ordinary
            ids[name] = tokenizer.encode(text, add_special_tokens=False).ids
        yield {"text": text, **ids}


def main():
    FOLDER.mkdir(exist_ok=True)
    for make in (gpt2, llama3):
        tokenizer = make()
        (FOLDER / f"{make.__name__}.json").write_text(tokenizer.to_str(), encoding="utf-8")
        lines = (json.dumps(sample, ensure_ascii=True) for sample in encoded(tokenizer))
        (FOLDER / f"{make.__name__}_ids.jsonl").write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
