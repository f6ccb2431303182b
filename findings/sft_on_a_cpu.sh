#!/usr/bin/env bash
# What TRL 1.16.0 (with transformers 5.24.0 and PyTorch 2.15.0) does on a machine without a GPU, where it is asked for nothing but a model and
# conversations. One would expect it to train in float32, in which it loads the model. SFTTrainer stops with "Your setup doesn't support
# bf16/gpu. You need to assign use_cpu", because SFTConfig sets bf16. With use_cpu=True it still sets bf16, on every processor, so that one
# without instructions for bfloat16 emulates it and a product takes many times as long as in float32; nothing says so. bf16=False has to be
# given. Questions are learned like answers, and assistant_only_loss=True, which would leave them out, refuses SmolLM2's template, because it
# has no {% generation %} and is not one of those that TRL knows. Downloads 2.5 GB, of which PyTorch is the most.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q trl==1.16.0 transformers==5.24.0 torch==2.15.0 datasets==5.2.0 accelerate==1.15.0 tokenizers==0.23.3 jinja2==3.1.6
export SCRATCH=$scratch CUDA_VISIBLE_DEVICES= HF_HUB_OFFLINE=1 HF_HOME=$scratch/cache
"$scratch/venv/bin/python" 2>/dev/null - <<'PYTHON'
import os

import datasets
import torch
import transformers
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE(vocab={character: number for number, character in enumerate(alphabet)}, merges=[]))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>")
# SmolLM2's
tokenizer.chat_template = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named "
    "SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
model = os.environ["SCRATCH"] + "/model"
transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(model)
dialogue = [{"role": "user", "content": "ok?"}, {"role": "assistant", "content": "yes"}]
conversations = datasets.Dataset.from_list([{"messages": dialogue}] * 4)


def trainer(**options):
    config = trl.SFTConfig(output_dir=os.environ["SCRATCH"], report_to="none", **options)
    return trl.SFTTrainer(model=model, args=config, train_dataset=conversations, processing_class=tokenizer)


def refusal(**options):
    try:
        trainer(**options)
    except ValueError as error:
        return str(error)


said = refusal()
print("by its defaults:", said)
assert said == "Your setup doesn't support bf16/gpu. You need to assign use_cpu if you want to train the model on CPU."
with_cpu = trainer(use_cpu=True)
print("with use_cpu=True: the model is loaded in", with_cpu.model.dtype, "and computes in bfloat16:", with_cpu.args.bf16)
assert with_cpu.model.dtype == torch.float32 and with_cpu.args.bf16
row = with_cpu.train_dataset[0]
print("of", len(row["labels"]), "tokens are learned", sum(label != -100 for label in row["labels"]))
assert row["labels"] == row["input_ids"]
said = refusal(use_cpu=True, bf16=False, assistant_only_loss=True)
print("with assistant_only_loss=True:", said)
assert said.startswith("The chat template is not training-compatible")
PYTHON
