#!/usr/bin/env python3
"""The same training run as gpt-train's, as a plain PyTorch program, eager or compiled: what scripts/compare_pytorch.sh compares with.

    python scripts/pytorch_baseline.py --config c.yaml --text FILE [--initial ckpt.pt] [--dtype bfloat16] [--compile [MODE]] [--max-steps N] [--metrics OUT]

Reads the configuration that `gpt-train --print-config` writes. Written as one would write it with PyTorch today: SDPA
attention, fused AdamW, foreach clipping, gradients set to None, batches gathered on the device, the loss read only where it is logged;
bfloat16 by autocast. It trains on the batches that gpt-train takes from the same text and seed, and with --initial from the weights in a
checkpoint of gpt-train's, so that the losses can be compared step by step. The metrics have gpt-train's form, one JSON object for each
logged step; the last line printed is the median tokens/s after the warm-up.
"""

import argparse
import contextlib
import itertools
import json
import math
import pathlib
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


def read_config(path):
    """Two levels of `key: value`, which is all the YAML that --print-config writes."""
    config, section = {}, ""
    for line in pathlib.Path(path).read_text().splitlines():
        line = line.split(" #")[0].rstrip()
        if not line or line.lstrip().startswith("#"):
            continue
        key, _, value = line.strip().partition(":")
        if not line.startswith(" "):
            section = key + "." if not value.strip() else ""
        if value.strip():
            config[section + key if line.startswith(" ") else key] = parse(value.strip().strip("\"'"))
    return config


def parse(text):
    if text in ("true", "false", "auto"):
        return {"true": True, "false": False, "auto": None}[text]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n_head, self.dropout = c["n_head"], c["dropout"]
        self.n_kv_head, self.head_dim = c["n_kv_head"], c["head_dim"]
        self.c_attn = nn.Linear(c["n_embd"], (self.n_head + 2 * self.n_kv_head) * self.head_dim, bias=c["bias"])
        self.c_proj = nn.Linear(self.n_head * self.head_dim, c["n_embd"], bias=c["bias"])

    def forward(self, x, rotary):
        B, T, _ = x.shape
        q, k, v = self.c_attn(x).view(B, T, -1, self.head_dim).transpose(1, 2).split(
            [self.n_head, self.n_kv_head, self.n_kv_head], dim=1)
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0,
                                           enable_gqa=self.n_kv_head < self.n_head)
        return F.dropout(self.c_proj(y.transpose(1, 2).reshape(B, T, -1)), self.dropout, self.training)


def rotate(x, cos, sin):
    x1, x2 = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-x2, x1], dim=-1) * sin


PLAIN = ("gelu", "relu2")  # without a gate


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dropout = c["dropout"]
        self.activation = (lambda x: F.gelu(x, approximate="tanh")) if c["mlp"] == "gelu" else lambda x: F.relu(x).square()
        self.c_fc = nn.Linear(c["n_embd"], c["n_hidden"], bias=c["bias"])
        self.c_proj = nn.Linear(c["n_hidden"], c["n_embd"], bias=c["bias"])

    def forward(self, x):
        return F.dropout(self.c_proj(self.activation(self.c_fc(x))), self.dropout, self.training)


class GatedMlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dropout = c["dropout"]
        self.activation = F.silu if c["mlp"] == "swiglu" else lambda x: F.gelu(x, approximate="tanh")
        self.w1 = nn.Linear(c["n_embd"], c["n_hidden"], bias=c["bias"])
        self.w2 = nn.Linear(c["n_hidden"], c["n_embd"], bias=c["bias"])
        self.w3 = nn.Linear(c["n_embd"], c["n_hidden"], bias=c["bias"])

    def forward(self, x):
        return self.w2(F.dropout(self.activation(self.w1(x)) * self.w3(x), self.dropout, self.training))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = norm(c), Attention(c), norm(c), (Mlp if c["mlp"] in PLAIN else GatedMlp)(c)

    def forward(self, x, rotary):
        x = x + self.attn(self.ln_1(x), rotary)
        return x + self.mlp(self.ln_2(x))


def norm(c):
    if c["norm"] == "rmsnorm":
        return nn.RMSNorm(c["n_embd"], eps=c["norm_eps"])
    return nn.LayerNorm(c["n_embd"], eps=c["norm_eps"], bias=c["bias"])


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, T, head_dim = c, c["block_size"], c["head_dim"]
        self.wte = nn.Embedding(c["vocab_rows"], c["n_embd"])
        self.wpe = nn.Embedding(T, c["n_embd"]) if c["position"] == "learned" else None
        self.h = nn.ModuleList(Block(c) for _ in range(c["n_layer"]))
        self.ln_f = norm(c)
        self.lm_head = nn.Linear(c["n_embd"], c["vocab_rows"], bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("c_proj.weight", "w2.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * c["n_layer"]) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        if c["tie_weights"]:
            self.lm_head.weight = self.wte.weight
        if self.wpe is None:
            angle = torch.outer(torch.arange(T), c["rope_theta"] ** (-torch.arange(0, head_dim, 2) / head_dim)).repeat(1, 2)
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids, targets, label_smoothing):
        x, rotary = self.wte(ids), None
        if self.wpe is not None:
            x = x + self.wpe.weight[: ids.shape[1]]
        else:
            rotary = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        x = F.dropout(x, self.c["dropout"], self.training)
        for block in self.h:
            x = block(x, rotary)
        return self.loss(x, targets, label_smoothing)

    def loss(self, x, targets, label_smoothing):
        logits = self.lm_head(self.ln_f(x))[..., : self.c["vocab_size"]]
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=label_smoothing)


def compiled(model, mode):
    """As a whole in one of torch.compile's modes, or `blocks`: the same code for every block, and what follows them. So a model of many
    layers is compiled in the time of one."""
    if mode != "blocks":
        return torch.compile(model, mode=mode)
    for block in model.h:
        block.compile()
    model.loss = torch.compile(model.loss)
    return model


def learning_rate(c, step, total):
    warmup = min(1000, total // 10) if c["warmup_steps"] is None else c["warmup_steps"]
    if step < warmup:
        return c["learning_rate"] * (step + 1) / (warmup + 1)
    if c["lr_schedule"] == "constant":
        return c["learning_rate"]
    begin = max(warmup, total - max(1, round(c["decay_fraction"] * total))) if c["lr_schedule"] == "wsd" else warmup
    done = max(0, step - begin) / (total - begin)
    by_root = c["lr_schedule"] == "wsd" and c["decay_shape"] == "1-sqrt"
    left = {"cosine": 0.5 * (1 + math.cos(math.pi * done))}.get(c["lr_schedule"], 1 - math.sqrt(done) if by_root else 1 - done)
    return c["min_lr"] + left * (c["learning_rate"] - c["min_lr"])


def read_tokens(path, config):
    text = pathlib.Path(path).read_text(encoding="utf-8")
    vocabulary = {character: i for i, character in enumerate(sorted(set(text)))}
    tokens = torch.tensor([vocabulary[character] for character in text])
    return tokens[: int(len(tokens) * (1 - config.get("data.validation_fraction", 0.1)))], len(vocabulary)


MASK, GOLDEN = 2**64 - 1, 0x9E3779B97F4A7C15


def mix64(value):
    value &= MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31


def permuted(index, size, key):
    """gpt-train's order of 0..size-1 for a key: a Feistel network of ten rounds, whose cycle is walked."""
    key, half = mix64(key + GOLDEN), 0
    while 1 << 2 * half < size:
        half += 1
    while True:
        left, right = index >> half, index & (1 << half) - 1
        for turn in range(1, 11):
            left, right = right, left ^ mix64(key + turn * GOLDEN & MASK ^ right) & (1 << half) - 1
        index = left << half | right
        if index < size:
            return index


def updates(seed, tokens, block_size, batch_size, accumulation):
    """Yields gpt-train's micro-batches, as lists of the first tokens of their sequences, for each update, epoch after epoch: in the order
    of src/data/sample_order.h. At the end of an epoch there may be fewer of them, and of their sequences."""
    run, epoch = mix64(mix64(seed * 4 + 2)), 0
    samples = (tokens - block_size) // block_size
    if samples < 1:
        raise SystemExit(f"the text has {tokens} tokens to train on, and at least {2 * block_size} are needed")
    while True:
        key = mix64(run + epoch)
        offset = mix64(key) % block_size
        starts = [permuted(i, samples, key) * block_size + offset for i in range(samples)]
        batches = [starts[i : i + batch_size] for i in range(0, samples, batch_size)]
        yield from (batches[i : i + accumulation] for i in range(0, len(batches), accumulation))
        epoch += 1


def model_config(config, vocab_size):
    c = {key.removeprefix("model."): value for key, value in config.items() if key.startswith("model.")}
    c["vocab_size"] = vocab_size
    c["vocab_rows"] = -(-vocab_size // c["vocab_multiple"]) * c["vocab_multiple"]
    if c["n_kv_head"] is None:
        c["n_kv_head"] = c["n_head"]
    if c["head_dim"] is None:
        c["head_dim"] = c["n_embd"] // c["n_head"]
    if c["n_hidden"] is None:
        c["n_hidden"] = 4 * c["n_embd"] if c["mlp"] in PLAIN else -(-(8 * c["n_embd"] // 3) // 64) * 64
    return c


def make_optimizer(model, t):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": t["weight_decay"]},
                              {"params": others, "weight_decay": 0.0}],
                             betas=(t["beta1"], t["beta2"]), eps=t["eps"], fused=True)


def train(model, tokens, t, block_size, seed, steps, dtype, metrics):
    """Returns the tokens/s of every interval between two logged steps."""
    B, accumulation = t["batch_size"], t["gradient_accumulation_steps"]
    model.train()
    optimizer, rates = make_optimizer(model, t), []
    order = [[torch.tensor(at, device=tokens.device) for at in update]
             for update in itertools.islice(updates(seed, len(tokens), block_size, B, accumulation), steps)]
    windows = tokens.unfold(0, block_size + 1, 1)
    started, logged, taken = time.perf_counter(), 0, 0
    for step, update in enumerate(order):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(t, step, steps)
        sequences, mean = sum(map(len, update)), 0
        taken += sequences * block_size
        for at in update:
            batch = windows[at]
            with torch.autocast(tokens.device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
                loss = model(batch[:, :-1], batch[:, 1:], t["label_smoothing"])
            loss = loss * (len(at) / sequences)
            loss.backward()
            mean = mean + loss.detach()
        if t["gradient_clip"]:
            torch.nn.utils.clip_grad_norm_(model.parameters(), t["gradient_clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % t["log_interval"] == 0 or step + 1 == steps:
            value, now = mean.item(), time.perf_counter()
            count = step + 1 - logged
            rates.append(taken / (now - started))
            print(json.dumps({"step": step + 1, "loss": value, "step_ms": 1000 * (now - started) / count,
                              "tokens_per_second": rates[-1]}), file=metrics, flush=True)
            started, logged, taken = now, step + 1, 0
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--dtype", choices=("float32", "tf32", "bfloat16"), default="float32")
    parser.add_argument("--compile", choices=("default", "reduce-overhead", "blocks"), nargs="?", const="default",
                        help="with torch.compile, in a mode of its own or block by block")
    parser.add_argument("--initial", help="a checkpoint of gpt-train's with the weights to begin with")
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--metrics", default="/dev/stderr", help="where the JSON lines go")
    arguments = parser.parse_args()

    config = read_config(arguments.config)
    torch.manual_seed(config["seed"])
    if config["threads"]:
        torch.set_num_threads(config["threads"])
    training = {key.removeprefix("training."): value for key, value in config.items() if key.startswith("training.")}
    device = config["device"] or ("cuda" if torch.cuda.is_available() else "cpu")
    tokens, vocab_size = read_tokens(arguments.text, config)
    vocab_size = config["model.vocab_size"] or vocab_size
    if arguments.dtype == "tf32":
        torch.set_float32_matmul_precision("high")
    tokens = tokens.to(device)
    with torch.device(device):  # initializing a large model on the CPU takes minutes
        model = GPT(model_config(config, vocab_size))
    if arguments.initial:
        weights = torch.load(arguments.initial, weights_only=True, map_location=device)["model"]
        model.load_state_dict({name.removeprefix("transformer."): value for name, value in weights.items()})
    if arguments.compile:
        model = compiled(model, arguments.compile)
    steps = arguments.max_steps or training["max_steps"]
    with open(arguments.metrics, "w", encoding="utf-8") as metrics:
        rates = train(model, tokens, training, config["model.block_size"], config["seed"], steps, arguments.dtype, metrics)
    print(f"{statistics.median(rates[1:] or rates):.0f} tokens/s")


if __name__ == "__main__":
    main()
