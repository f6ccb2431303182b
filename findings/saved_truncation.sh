#!/usr/bin/env bash
# What save_pretrained of transformers 5.24.0 writes into tokenizer.json after texts were cut or padded, as for a data set. One would expect
# truncation, max_length and padding to hold for the call that has them. They stay in the tokenizer until the next call and are saved with
# it, so that the last call before the saving decides what the file says. transformers itself passes them over when it reads the folder, and
# so does gigatoken 0.10.0. Programs that go by the file, such as tokenizers 0.23.3 and kitoken 0.11.1, cut each text to that length, or put
# padding behind it, which here is the token that ends a text; nothing says so. Loading and saving keeps the settings, and a plain call
# before the saving takes them away.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q transformers==5.24.0 tokenizers==0.23.3 kitoken==0.11.1 gigatoken==0.10.0
"$scratch/venv/bin/python" - "$scratch" 2>/dev/null <<'PYTHON'
import json
import sys

import gigatoken
import kitoken
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

END, LONG, SHORT = "</s>", "to be or not to be", "to"
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE(vocab={character: number for number, character in enumerate(alphabet)}, merges=[]))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)


def lengths(name, **call):
    """The number of ids that each program makes of both texts, when the folder was saved after such a call."""
    folder = f"{sys.argv[1]}/{name}"
    tokenizer([LONG, SHORT], **call)
    tokenizer.save_pretrained(folder)
    return lengths_by(name, folder)


def lengths_by(name, folder):
    file = f"{folder}/tokenizer.json"
    programs = {"transformers": lambda text: AutoTokenizer.from_pretrained(folder)(text).input_ids,
                "gigatoken": gigatoken.Tokenizer(folder).encode,
                "tokenizers": lambda text: Tokenizer.from_file(file).encode(text).ids,
                "kitoken": lambda text: kitoken.Kitoken.from_tokenizers_file(file).encode(text, True)}
    found = {program: (len(encode(LONG)), len(encode(SHORT))) for program, encode in programs.items()}
    print(f"{name}: {found}")
    with open(file) as opened:
        settings = json.load(opened)
    assert found["transformers"] == found["gigatoken"] == (len(LONG), len(SHORT))
    assert found["tokenizers"] == found["kitoken"]
    return found["tokenizers"], settings["truncation"] is not None, settings["padding"] is not None


assert lengths("a plain call") == ((18, 2), False, False)
assert lengths("cut to 8", truncation=True, max_length=8) == ((8, 2), True, False)
AutoTokenizer.from_pretrained(f"{sys.argv[1]}/cut to 8").save_pretrained(f"{sys.argv[1]}/again")
assert lengths_by("cut to 8, loaded and saved", f"{sys.argv[1]}/again") == ((8, 2), True, False)
assert lengths("padded to 16", padding="max_length", max_length=16) == ((18, 16), False, True)
padded = Tokenizer.from_file(f"{sys.argv[1]}/padded to 16/tokenizer.json").encode(SHORT).tokens
print(f"    of which {padded.count(END)} are {END}")
assert padded.count(END) == 14
assert lengths("a plain call again") == ((18, 2), False, False)
PYTHON
