#!/usr/bin/env bash
# What transformers 5.24.0 computes with an activated adapter (aLoRA) of peft 0.21.2, whose factors are meant for the tokens from an invocation
# on (PyTorch 2.15.0). One would expect that whoever loads the folder computes the same. Seen: peft adds the factors from the first token of the
# invocation on, where a text has it. transformers loads the folder, too, by from_pretrained(FOLDER) or load_adapter(FOLDER), and says nothing;
# but only peft's own wrapper looks for the invocation, and without it the factors are added to no token: logits and generated texts are the
# base's to the bit. A plain adapter of the same form acts in both. So a check that such a folder loads does not show that it is used.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q peft==0.21.2 transformers==5.24.0 torch==2.15.0 accelerate==1.15.0
"$scratch/venv/bin/python" - "$scratch" <<'PYTHON'
import pathlib
import sys
import warnings

import peft
import torch
import transformers

warnings.simplefilter("ignore")
transformers.logging.disable_progress_bar()
torch.manual_seed(0)
folder = pathlib.Path(sys.argv[1])
INVOCATION = [7, 8]
ids = torch.tensor([[1, 2, 3, *INVOCATION, 4, 5]])
transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2)).save_pretrained(folder / "base")


def load(path):
    return transformers.AutoModelForCausalLM.from_pretrained(path).eval()


def with_adapter(path):
    model = load(folder / "base")
    model.load_adapter(str(path))
    return model.eval()


@torch.no_grad()
def moved(model):
    """By how much each token's logits are other than the base's."""
    return [round(value, 4) for value in (model(input_ids=ids).logits - load(folder / "base")(input_ids=ids).logits).abs().amax(-1)[0].tolist()]


for name, options in (("plain", {}), ("activated", {"alora_invocation_tokens": INVOCATION})):
    model = peft.get_peft_model(load(folder / "base"), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", **options))
    for parameter in (one for key, one in model.named_parameters() if "lora_" in key):
        torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder / name)

for name, from_token in (("plain", 0), ("activated", 3)):
    ways = {"peft": peft.PeftModel.from_pretrained(load(folder / "base"), folder / name).eval(),
            "from_pretrained": load(folder / name), "load_adapter": with_adapter(folder / name)}
    for way, model in ways.items():
        by = moved(model)
        print(f"{name} adapter by {way}: logits of the tokens {ids[0].tolist()} move by {by}")
        acts = name == "plain" or way == "peft"
        assert [value > 0 for value in by] == [acts and place >= from_token for place in range(len(by))], by

with torch.no_grad():
    texts = [load(folder / name).generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0).tolist() for name in ("base", "activated")]
assert texts[0] == texts[1], texts
print("transformers' generate() with the activated adapter writes what the base writes")
PYTHON
