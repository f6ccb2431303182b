#!/usr/bin/env bash
# CTranslate2 4.8.5 and the scaling of Llama 3.1's rotary embedding. With the settings of the published models (factor 8, 1 and 4, 8,192
# positions) a converted model has other log probabilities than transformers 5.24.0, and nothing says so; without scaling they are the same.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q transformers==5.24.0 torch==2.15.0 ctranslate2==4.8.5 numpy tokenizers
SCRATCH=$scratch "$scratch/venv/bin/python" - <<'PYTHON'
import os
import pathlib

import ctranslate2
import tokenizers
import torch
import transformers

scratch = pathlib.Path(os.environ["SCRATCH"])
words = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"w{i}" for i in range(252))]
ids = torch.arange(128) * 7919 % 256
LLAMA_3_1 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 8192}


def difference(name, rope):
    """Of the log probabilities of 128 tokens, in a model with random weights and this rotary embedding."""
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=128, initializer_range=0.1, rope_parameters={"rope_theta": 500000.0, **rope})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    folder = scratch / name
    model.save_pretrained(folder)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>",
                                         unk_token="<unk>").save_pretrained(folder)
    converted = folder / "ctranslate2"
    ctranslate2.converters.TransformersConverter(str(folder)).convert(str(converted))
    scores = ctranslate2.Generator(str(converted), compute_type="float32").score_batch([[words[i] for i in ids]])[0].log_probs
    with torch.no_grad():
        logits = model(ids[None]).logits[0, :-1].log_softmax(-1)
    theirs = logits.gather(1, ids[1:, None])[:, 0]
    return (torch.tensor(scores) - theirs).abs().max().item()


plain, scaled = difference("plain", {"rope_type": "default"}), difference("llama3", LLAMA_3_1)
print(f"largest difference of a log probability: {plain:.1e} without scaling, {scaled:.1e} with Llama 3.1's")
assert plain < 1e-4 < 1e-2 < scaled
PYTHON
