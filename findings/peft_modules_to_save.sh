#!/usr/bin/env bash
# What peft 0.21.2 trains whole beside adapters by modules_to_save, in a small random Llama of transformers 5.24.0 (PyTorch 2.15.0). Guesses:
# "norm" names the last norm, model.norm, alone; and "embed_tokens" trains the table, also where the head is tied to it. Seen: "norm" takes
# every norm, five of five in two layers, because modules are compared by how their names end, with or without a dot before it; only
# "model.norm" is one. Of a tied model the table is trained apart: the head goes on with the rows that the base has, so that loading the base
# and putting the trained table into it gives other logits. With ensure_weight_tying the adapter has both tables, equal, and they are its model.
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
from safetensors.torch import load_file

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.manual_seed(0)
base, ids = pathlib.Path(sys.argv[1]) / "base", torch.arange(20)[None]
transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, tie_word_embeddings=True)).save_pretrained(base)


def load():
    return transformers.AutoModelForCausalLM.from_pretrained(base).eval()


def trained(modules, **options):
    """What three updates leave in the adapter's file beside factors, and the logits of the adapted model."""
    model = peft.get_peft_model(load(), peft.LoraConfig(target_modules=["q_proj"], lora_alpha=0, modules_to_save=modules, task_type="CAUSAL_LM", **options))
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    folder = base.with_name("-".join([*modules, *options]))
    model.save_pretrained(folder)
    whole = {name.removeprefix("base_model.model."): values for name, values in load_file(folder / "adapter_model.safetensors").items() if "lora_" not in name}
    with torch.no_grad():
        return whole, model.eval()(input_ids=ids).logits


norms = {modules: len(trained([modules])[0]) for modules in ("norm", "model.norm")}
print(f"norms that are trained, of 5: {norms}")
assert norms == {"norm": 5, "model.norm": 1}, norms

for options, same in (({}, False), ({"ensure_weight_tying": True}, True)):
    whole, logits = trained(["embed_tokens"], **options)
    with torch.no_grad():
        model = load()
        model.model.embed_tokens.weight.copy_(whole["model.embed_tokens.weight"])
        apart = (model(input_ids=ids).logits - logits).abs().max().item()
    print(f"embed_tokens, tied, {options}: the file has {sorted(whole)}; logits are {apart:.2g} from those of the base with this table")
    assert (apart < 1e-5) is same, apart
    assert ("lm_head.weight" in whole) is same, sorted(whole)
PYTHON
