#!/usr/bin/env bash
# CTranslate2 4.8.5 and the two bases of Gemma 3's rotary embedding. Its converter reads them from the attributes rope_theta and
# rope_local_base_freq, which configurations of transformers 5.24.0 no longer have: they are in rope_parameters, an object for each kind of
# layer. So a converted model rotates by 1,000,000 and 10,000 whatever its config.json says. With these bases, which the published models
# have, log probabilities are transformers'; with others they are different ones, and nothing says so.
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
words = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"w{i}" for i in range(60))]
ids = torch.randint(4, 64, (1, 40), generator=torch.Generator().manual_seed(1))


def difference(full, windowed):
    """Of the log probabilities of 40 tokens, in a model with random weights and these bases."""
    torch.manual_seed(2)
    config = transformers.Gemma3TextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, query_pre_attn_scalar=16, sliding_window=64, max_position_embeddings=64, initializer_range=0.3,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": full},
                         "sliding_attention": {"rope_type": "default", "rope_theta": windowed}})
    assert not hasattr(config, "rope_theta") and not hasattr(config, "rope_local_base_freq")
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    folder = scratch / f"{full:.0f}-{windowed:.0f}"
    model.save_pretrained(folder)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>",
                                         unk_token="<unk>").save_pretrained(folder)
    converted = folder / "ctranslate2"
    ctranslate2.converters.TransformersConverter(str(folder)).convert(str(converted))
    scores = ctranslate2.Generator(str(converted), compute_type="float32").score_batch([[words[i] for i in ids[0]]])[0].log_probs
    with torch.no_grad():
        logits = model(ids).logits[0, :-1].log_softmax(-1)
    theirs = logits.gather(1, ids[0, 1:, None])[:, 0]
    return (torch.tensor(scores) - theirs).abs().max().item()


published, others = difference(1e6, 1e4), difference(1e4, 100.0)
print(f"largest difference of a log probability: {published:.1e} with the published bases, {others:.1e} with others")
assert published < 1e-4 < 1e-2 < others
PYTHON
