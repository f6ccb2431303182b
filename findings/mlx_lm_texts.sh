#!/usr/bin/env bash
# What fine-tuning by mlx-lm 0.32.2 (MLX 0.32.4, on a CPU) learns and tests of a train.jsonl with one text a line. One would expect every
# token of every text, in batches that are mixed anew in every epoch. Seen: batches are the same neighbouring lines in every epoch, and only
# their order changes. The code sorts by length first, but what it takes for the length is the number of keys in the line's object, so that
# nothing moves. Lines at the end of the file that fill no batch are in none, and a test of all batches (-1) leaves them out, too. Behind
# each text one token of padding is learned, whose id is 0: what follows the end of a text is then the token 0, which no text has. So losses
# are not to be compared with those of other programs, least of all on short texts. It needs x86-64 with glibc 2.35 or newer.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q mlx-lm==0.32.2 "mlx[cpu]==0.32.4" transformers==5.24.0 tokenizers==0.23.3
MLX_DISABLE_COMPILE=1 "$scratch/venv/bin/python" - "$scratch" 2>/dev/null <<'PYTHON'
import contextlib
import json
import os
import pathlib
import sys
import types

import mlx.core
from mlx import nn, optimizers
from mlx_lm.models import llama
from mlx_lm.tuner import datasets, trainer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

BATCH, LINES, END = 4, 10, "</s>"
words = ["never", END, *(f"w{number}" for number in range(30))]
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="never"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END)
folder = pathlib.Path(sys.argv[1])
texts = [" ".join(f"w{(line + place) % 30}" for place in range(12 - line)) for line in range(LINES)]  # the first one is the longest
(folder / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
train, _, _ = datasets.load_local_dataset(folder, tokenizer, types.SimpleNamespace())
train = datasets.CacheDataset(train)
rows = [train[line][0] for line in range(LINES)]
assert all(row == tokenizer.encode(f"{text} {END}") for row, text in zip(rows, texts))

epochs = []
for _ in range(3):
    batches = trainer.iterate_batches(train, BATCH, 2048)
    epochs.append(sorted([rows.index(row[:row.index(1) + 1]) for row in batch.tolist()] for batch, _ in batches))
print(f"of {LINES} lines, lengths from {len(rows[0])} down to {len(rows[-1])}, the batches of three epochs have {epochs}")
assert epochs == [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 3

mlx.core.random.seed(1)
model = llama.Model(llama.ModelArgs(
    model_type="llama", hidden_size=32, num_hidden_layers=1, intermediate_size=64, num_attention_heads=2, rms_norm_eps=1e-5,
    vocab_size=len(words), tie_word_embeddings=False))


def mean_loss(lines, padding):
    """The mean over all targets of these lines, with so many tokens 0 behind each."""
    losses = []
    for line in lines:
        row = mlx.core.array([rows[line] + [0] * padding])
        losses += nn.losses.cross_entropy(model(row[:, :-1]), row[:, 1:])[0].tolist()
    return sum(losses) / len(losses)


tested = trainer.evaluate(model, train, BATCH, -1)
expected, seen = mean_loss(range(LINES), 0), mean_loss(range(8), 1)
print(f"the loss of all batches is {tested:.5f}; that of all lines is {expected:.5f}, of the first eight with a token 0 each {seen:.5f}")
assert abs(tested - seen) < 1e-4 < abs(tested - expected)

options = trainer.TrainingArgs(batch_size=BATCH, iters=200, adapter_file=str(folder / "adapters.safetensors"))
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    trainer.train(model, optimizers.Adam(learning_rate=0.01), train, args=options)
chances = mlx.core.softmax(model(mlx.core.array([rows[0]]))[0, -1])
print(f"after training, behind {END} comes {words[chances.argmax().item()]!r}, with a chance of {chances.max().item():.3f}")
assert chances.argmax().item() == 0 and chances.max().item() > 0.9
PYTHON
