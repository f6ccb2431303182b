#!/usr/bin/env bash
# Configurations of transformers 5.24.0 that leave out what one would expect to be optional. A config.json of SmolLM3 without pad_token_id
# gets 128004, the number in SmolLM3-3B's own vocabulary, so that a model with a smaller vocabulary fails as it is made: AssertionError,
# "Padding_idx must be within num_embeddings"; null says that there is no such token. Ministral's head_dim is None where it is left out, and
# its attention does not divide as Llama's and Mistral's do: TypeError. In SmolLM3's no_rope_layers 1 stands for a layer that does rotate.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q transformers==5.24.0 torch==2.15.0
"$scratch/venv/bin/python" - <<'PYTHON'
from transformers import AutoConfig, AutoModelForCausalLM

SIZES = dict(vocab_size=100, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             bos_token_id=None, eos_token_id=None)


def outcome(family, **settings):
    try:
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SIZES, **settings))
        return "a model", model
    except (AssertionError, TypeError) as error:
        return type(error).__name__, None


for family, settings, wanted in (("llama", {}, "a model"), ("smollm3", {}, "AssertionError"),
                                 ("smollm3", {"pad_token_id": None}, "a model"), ("mistral", {}, "a model"),
                                 ("ministral", {}, "TypeError"), ("ministral", {"head_dim": 8}, "a model")):
    found, model = outcome(family, **settings)
    print(f"{family} with {settings or 'sizes alone'}: {found}")
    assert found == wanted, (family, settings, found)
    if family == "smollm3" and model:
        rotates = [layer.self_attn.use_rope for layer in model.model.layers]
        print(f"no_rope_layers {model.config.no_rope_layers}: layers that rotate {rotates}")
        assert [bool(flag) for flag in rotates] == [flag == 1 for flag in model.config.no_rope_layers] == [True, True]
PYTHON
