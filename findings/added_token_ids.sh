#!/usr/bin/env bash
# The ids of added_tokens in a tokenizer.json, as tokenizers 0.23.3 and transformers 5.24.0 read them. One would expect each token to have
# the id that stands beside it. It is passed over: tokens that the model's own vocabulary lacks are numbered in their order, from the number
# of its tokens on; nothing says so, and saving writes the new ids. As long as no id is left out, these are the same. Where one is left out
# before them, such as 256 here and 100256 in cl100k_base, <|endofprompt|> has the id that the file gives to <|endoftext|>. Where tokens
# were removed from the vocabulary and the others kept their ids, <|endoftext|> gets the id of an ordinary token, and words that have it
# decode as the end of a text. added_tokens_decoder in tokenizer_config.json changes nothing. kitoken 0.11.1 and gigatoken 0.10.0 take the
# ids of the file. Tokens that the vocabulary lists, too, have its ids in all of them.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q transformers==5.24.0 tokenizers==0.23.3 kitoken==0.11.1 gigatoken==0.10.0
"$scratch/venv/bin/python" - "$scratch" 2>/dev/null <<'PYTHON'
import json
import pathlib
import sys

import gigatoken
import kitoken
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer

ENDS = ["<|endoftext|>", "<|endofprompt|>"]
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
PAIRS = [("i", "n"), ("o", "n"), ("a", "t"), ("t", "h")]


def folder_of(name, vocabulary, merges, ids):
    """Has a byte-level BPE with these two special tokens."""
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    file = json.loads(tokenizer.to_str())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    file["added_tokens"] = [{"id": number, "content": token, **flags} for number, token in zip(ids, ENDS)]
    folder = pathlib.Path(sys.argv[1]) / name
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(file))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": ENDS[0],
        "added_tokens_decoder": {str(number): {"content": token, **flags} for number, token in zip(ids, ENDS)}}))
    return folder


def read(folder):
    """The ids of both tokens in each program."""
    file, text = str(folder / "tokenizer.json"), "".join(ENDS)
    loaded = Tokenizer.from_file(file)
    found = {"tokenizers": loaded.encode(text).ids, "transformers": AutoTokenizer.from_pretrained(folder).encode(text),
             "kitoken": kitoken.Kitoken.from_tokenizers_file(file).encode(text, True),
             "gigatoken": gigatoken.Tokenizer(str(folder)).encode(text).tolist()}
    saved = [token["id"] for token in json.loads(loaded.to_str())["added_tokens"]]
    print(f"{folder.name}: {found}; tokenizers saves {saved}")
    assert found["transformers"] == found["tokenizers"] == saved
    assert found["kitoken"] == found["gigatoken"]
    return found["tokenizers"], found["kitoken"]


plain = {token: number for number, token in enumerate(BYTES)}
assert read(folder_of("no id is left out", plain, [], [256, 257])) == ([256, 257], [256, 257])
assert read(folder_of("256 is left out, and 258 to 275", plain, [], [257, 276])) == ([256, 257], [257, 276])

full = {token: number for number, token in enumerate(BYTES + ["".join(pair) for pair in PAIRS])}
pruned = {token: number for token, number in full.items() if token not in ("in", "on")}
folder = folder_of("the tokens 256 and 257 were removed", pruned, PAIRS[2:], [260, 261])
assert read(folder) == ([258, 259], [260, 261])
tokenizer = AutoTokenizer.from_pretrained(folder)
ids = tokenizer.encode("that cat")
texts = [tokenizer.decode(ids), tokenizer.decode(ids, skip_special_tokens=True)]
print(f"    'that cat' is {ids}, which transformers decodes as {texts[0]!r}, and without special tokens as {texts[1]!r}")
assert ids.count(tokenizer.eos_token_id) == 2 and texts == ["<|endofprompt|><|endoftext|> c<|endoftext|>", " c"]

listed = {**pruned, ENDS[0]: 260, ENDS[1]: 261}
assert read(folder_of("... and the vocabulary lists the special ones", listed, PAIRS[2:], [260, 261])) == ([260, 261], [260, 261])
PYTHON
