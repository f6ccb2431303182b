#!/usr/bin/env python3
"""Writes tests/fixtures/{gpt2,llama}_form.gguf, which our export has to equal to the byte, and tests/fixtures/q8_0.safetensors.

    pip install gguf==0.19.0 numpy safetensors==0.8.0 && python scripts/make_gguf_fixture.py

The package gguf, llama.cpp's own, writes the files from the parameters in the .safetensors of the same names, llama_form in q8_0 and
gpt2_form in bfloat16. Tokens are characters; those of gpt2_form are fewer than its model has. q8_0.safetensors holds rows of awkward
numbers and what the package makes of them.
"""

import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors import safe_open
from safetensors.numpy import save_file

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures"
NAMES = {"attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_1": "attn_norm", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up",
         "mlp.c_proj": "ffn_down", "mlp.w1": "ffn_gate", "mlp.w2": "ffn_down", "mlp.w3": "ffn_up"}
OUTER = {"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm", "lm_head": "output"}
END = "<|endoftext|>"


def parameters(form):
    with safe_open(FIXTURES / f"{form}.safetensors", "numpy") as file:
        names = [name for name in file.keys() if name.startswith("initial.")]
        return file.metadata(), {name.removeprefix("initial."): file.get_tensor(name) for name in names}


def permuted(rows, heads):
    """From RoPE by halves to RoPE by neighbours."""
    halves = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return np.stack([halves[:, 0], halves[:, 1]], axis=2).reshape(rows.shape)


def tensors_of(form, config):
    heads, groups, width = int(config["n_head"]), int(config["n_kv_head"]), int(config["n_embd"])
    for name, values in form.items():
        base, ending = name.rsplit(".", 1)
        if base in OUTER:
            if OUTER[base] in ("token_embd", "output"):
                values = values[:int(config["vocab_size"])]
                values = np.concatenate([values, values.astype(np.float64).mean(0, keepdims=True).astype(np.float32)])
            yield f"{OUTER[base]}.{ending}", values
            continue
        layer, inner = base.removeprefix("transformer.h.").split(".", 1)
        if inner == "attn.c_attn" and config["position"] == "rope":
            keys = groups * width // heads
            yield f"blk.{layer}.attn_q.{ending}", permuted(values[:width], heads)
            yield f"blk.{layer}.attn_k.{ending}", permuted(values[width:width + keys], groups)
            yield f"blk.{layer}.attn_v.{ending}", values[width + keys:]
        else:
            yield f"blk.{layer}.{NAMES[inner]}.{ending}", values


def vocabulary_size(config):
    return int(config["vocab_size"]) + 1  # characters have no token that ends a text


def add_tokenizer(writer, size, unused):
    """Characters; the last `unused` of the model's tokens are none of the tokenizer's."""
    tokens = ["\n", "\u2581", *map(chr, range(0x21, 0x21 + size - 4)), "é", "語"][:size - unused]
    padding = [f"[PAD{i}]" for i in range(size - unused, size)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*tokens, *padding, END])
    writer.add_token_scores([0.0] * (size + 1))
    writer.add_token_types([*[gguf.TokenType.NORMAL] * len(tokens), *[gguf.TokenType.UNUSED] * unused, gguf.TokenType.CONTROL])
    writer.add_bos_token_id(size)
    writer.add_eos_token_id(size)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)


def write_form(form, values, config, kind, file_type):
    is_llama = form == "llama_form"
    writer = gguf.GGUFWriter(FIXTURES / f"{form}.gguf", "llama" if is_llama else "gpt2")
    writer.add_tags(["gpt-train", "text-generation"])
    writer.add_type("model")
    writer.add_name(form)
    writer.add_file_type(file_type)
    if kind == Type.Q8_0:
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(int(config["block_size"]))
    writer.add_embedding_length(int(config["n_embd"]))
    writer.add_block_count(int(config["n_layer"]))
    writer.add_feed_forward_length(int(config["n_hidden"]))
    writer.add_head_count(int(config["n_head"]))
    writer.add_head_count_kv(int(config["n_kv_head"]))
    writer.add_vocab_size(vocabulary_size(config))
    if is_llama:
        writer.add_layer_norm_rms_eps(float(config["norm_eps"]))
        writer.add_rope_dimension_count(int(config["n_embd"]) // int(config["n_head"]))
        writer.add_rope_freq_base(float(config["rope_theta"]))
    else:
        writer.add_layer_norm_eps(float(config["norm_eps"]))
    add_tokenizer(writer, int(config["vocab_size"]), unused=0 if is_llama else 2)
    for name, rows in sorted(tensors_of(values, config)):
        stored = Type.F32 if rows.ndim == 1 or name == "position_embd.weight" else kind
        writer.add_tensor(name, gguf.quants.quantize(rows, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def awkward_rows():
    random = np.random.default_rng(8)
    edges = np.float32([0, -0.0, 1e-45, -1e-45, 1e-39, -3e-39, 1.1754944e-38, 1, -1, 127, -127, 63.5, -63.5, 0.5, -0.5, 1.5, -2.5, 126.5,
                        0.49999997, -0.49999997, 1e-5, 3.1e-5, -6e-8, 65504, -8e6, 8.3e6, 1e4, 2, 3, 5, 7, -11])
    rows = [np.zeros(32), np.full(32, -0.0), np.full(32, 1e-45), np.full(32, -2e-39), edges,
            np.linspace(-1, 1, 32), np.arange(32) - 15.5, np.append(np.arange(31) + 0.5, 127), np.append(-np.arange(31) - 0.5, -127),
            np.where(np.abs(edges) < 1e-37, edges, 0), np.where(np.abs(edges) < 1e-4, edges, 0), np.full(32, 127 * 65503.0)]
    rows += [random.normal(size=32) * 10.0 ** exponent for exponent in range(-44, 6) for _ in range(4)]
    return np.stack(rows).astype(np.float32)


def main():
    for form, kind, file_type in (("llama_form", Type.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
                                  ("gpt2_form", Type.BF16, gguf.LlamaFileType.MOSTLY_BF16)):
        config, values = parameters(form)
        write_form(form, values, config, kind, file_type)
    rows = awkward_rows()
    with np.errstate(all="ignore"):
        save_file({"values": rows, "blocks": gguf.quants.quantize(rows, Type.Q8_0)}, FIXTURES / "q8_0.safetensors")


if __name__ == "__main__":
    main()
