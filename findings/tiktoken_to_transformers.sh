#!/usr/bin/env bash
# tiktoken's encodings, made into a tokenizer.json by convert_tiktoken_to_fast of transformers 5.24.0. One would expect the same ids, and gets
# others without a word. The pattern of cl100k_base in tiktoken 0.14.0 has \p{N}{1,3}+, which is possessive there, so that numbers are cut
# into three digits at a time; tokenizers 0.23.3 matches with Oniguruma, for which a + behind an interval repeats it, and a number is one piece.
# kitoken 0.11.1 reads the same tokenizer.json as tiktoken does. Special tokens get the ids that follow the last rank, in order, where
# cl100k_base and o200k_base leave some out: <|endoftext|> becomes 100256 instead of 100257, and <|endofprompt|> of o200k_base becomes 199999,
# which is the id of <|endoftext|>. Patterns and special tokens here are tiktoken's own. The ranks are not, because they would have to be
# downloaded: they have the right number, and all numbers of one to three digits.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q transformers==5.24.0 tokenizers==0.23.3 tiktoken==0.14.0 blobfile==3.3.0 kitoken==0.11.1
SCRATCH=$scratch "$scratch/venv/bin/python" - <<'PYTHON'
import os

import kitoken
import tiktoken
from tiktoken_ext import openai_public
from transformers import PreTrainedTokenizerFast
from transformers.integrations.tiktoken import convert_tiktoken_to_fast

NUMBER = "1234567"


def ranks_of(size):
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [b"%0*d" % (digits, number) for digits in (2, 3) for number in range(10**digits)]
    tokens += [b"\xff\xff" + number.to_bytes(3, "big") for number in range(size - len(tokens))]  # in no text
    return {token: rank for rank, token in enumerate(tokens)}


def pieces_and_ids(name, size):
    """Of a number, and the ids of two special tokens: by tiktoken, transformers and kitoken."""
    openai_public.load_tiktoken_bpe = lambda *_, **__: ranks_of(size)
    encoding = tiktoken.Encoding(**openai_public.ENCODING_CONSTRUCTORS[name]())
    folder = f"{os.environ['SCRATCH']}/{name}"
    convert_tiktoken_to_fast(encoding, folder)
    converted = PreTrainedTokenizerFast.from_pretrained(folder)
    other = kitoken.Kitoken.from_tokenizers_file(f"{folder}/tokenizer.json")
    special = ["<|endoftext|>", "<|endofprompt|>"]
    pieces = ([encoding.decode([one]) for one in encoding.encode(NUMBER)], converted.tokenize(NUMBER),
              [other.decode([one]).decode() for one in other.encode(NUMBER, True)])
    ids = ([encoding.encode_single_token(one) for one in special], converted.convert_tokens_to_ids(special))
    print(f"{name}: {NUMBER} is {pieces[0]} in tiktoken, {pieces[1]} in transformers, {pieces[2]} in kitoken")
    print(f"{name}: {special} are {ids[0]} in tiktoken, {ids[1]} in transformers")
    return pieces, ids


by_three, otherwise = ["123", "456", "7"], ["12", "34", "567"]
assert pieces_and_ids("cl100k_base", 100256) == ((by_three, otherwise, by_three), ([100257, 100276], [100256, 100260]))
assert pieces_and_ids("o200k_base", 199998) == ((by_three, by_three, by_three), ([199999, 200018], [199998, 199999]))
PYTHON
