#!/usr/bin/env bash
# The tokenizer that AutoTokenizer of transformers 5.24.0 loads beside a config.json of model_type qwen2. tokenizer_config.json names
# PreTrainedTokenizerFast, so that one would expect what tokenizer.json says, as it comes with model_type llama. But for qwen2, and the other
# model types that the library lists as having wrong classes on the hub, it takes the class of the model type, without a word: Qwen2's
# split takes the place of the file's. Here the file has a word for each character and no split for spaces, and every space is lost.
# PreTrainedTokenizerFast.from_pretrained reads the file as it is.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q transformers==5.24.0 tokenizers==0.23.3
"$scratch/venv/bin/python" - "$scratch" <<'PYTHON'
import json
import pathlib
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

TEXT = "to be or"
characters = Tokenizer(models.WordLevel({character: i for i, character in enumerate(" beorts")}, unk_token="s"))
characters.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
characters.decoder = decoders.Fuse()


def folder_of(model_type):
    folder = pathlib.Path(sys.argv[1]) / model_type
    folder.mkdir()
    characters.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, "vocab_size": 7}))
    return folder


for model_type, name, text in (("llama", "TokenizersBackend", TEXT), ("qwen2", "Qwen2Tokenizer", TEXT.replace(" ", ""))):
    folder = folder_of(model_type)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    seen = (type(tokenizer).__name__, tokenizer.decode(tokenizer(TEXT).input_ids))
    print(f"model_type {model_type}: AutoTokenizer loads {seen[0]}, which makes {seen[1]!r} of {TEXT!r}")
    assert seen == (name, text), seen
    as_it_is = PreTrainedTokenizerFast.from_pretrained(folder)
    assert as_it_is.decode(as_it_is(TEXT).input_ids) == TEXT
PYTHON
