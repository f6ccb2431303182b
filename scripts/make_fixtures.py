#!/usr/bin/env python3
"""Writes tests/fixtures/{gpt2,llama,qwen3,gemma3,olmo2,arcee,default}_form.safetensors: what our model and optimizer must reproduce.

    python scripts/make_fixtures.py            # rewrites the fixtures (the same bytes every time)
    python scripts/make_fixtures.py --check    # compares this file's model with transformers' GPT-2, Llama, Qwen3, Gemma 3, OLMo 2 and Arcee

A fixture holds random parameters, ten batches, and for the first batch logits, loss and every gradient; then the loss of
ten AdamW steps with clipping and schedule, and the parameters after them. Everything is computed in float64 by the plain
model below, which is formulated independently of ours: attention written out, rotary embedding as complex multiplication.

--check was run with transformers 5.23: in float64 the logits of the GPT-2 form equal GPT2LMHeadModel's to 3e-15, and those
of the Llama form LlamaForCausalLM's to 8e-7 (its norms and rotary tables are float32 even in a float64 model).
"""

import argparse
import json
import math
import pathlib
import struct

import torch
import torch.nn.functional as F

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures"
BATCH, STEPS, WARMUP = 2, 10, 3
TRAINING = dict(learning_rate=1e-2, min_lr=1e-3, warmup_steps=WARMUP, max_steps=STEPS, beta1=0.9, beta2=0.95,
                # Large enough that the rounding noise of a vanishing gradient is not blown up to a full step.
                eps=1e-4, weight_decay=0.1, gradient_clip=1.0)
SIZES = dict(n_layer=2, n_head=4, n_kv_head=4, n_embd=32, n_hidden=64, block_size=16, vocab_size=97, norm_eps=1e-5,
             rope_theta=10000.0)
FORMS = {
    "gpt2_form": dict(SIZES, vocab_multiple=64, norm="layernorm", mlp="gelu", position="learned", bias=True,
                      tie_weights=True, label_smoothing=0.0),
    "llama_form": dict(SIZES, n_kv_head=2, vocab_multiple=1, norm="rmsnorm", mlp="swiglu", position="rope", bias=False,
                       tie_weights=False, label_smoothing=0.0),
    "qwen3_form": dict(SIZES, n_kv_head=2, head_dim=12, qk_norm="heads", vocab_multiple=1, norm="rmsnorm", mlp="swiglu",
                       position="rope", bias=False, tie_weights=True, label_smoothing=0.0),
    "gemma3_form": dict(SIZES, n_kv_head=1, head_dim=12, qk_norm="heads", norm_place="both", is_gemma=True, vocab_multiple=1,
                        norm="rmsnorm", mlp="geglu", position="rope", window=5, window_pattern="SL",
                        rope_window_theta=100.0, bias=False, tie_weights=True, label_smoothing=0.0),
    "olmo2_form": dict(SIZES, n_kv_head=2, qk_norm="all", norm_place="output", vocab_multiple=1, norm="rmsnorm",
                       mlp="swiglu", position="rope", bias=False, tie_weights=False, label_smoothing=0.0),
    "arcee_form": dict(SIZES, n_kv_head=2, vocab_multiple=1, norm="rmsnorm", mlp="relu2", position="rope", bias=False,
                       tie_weights=False, label_smoothing=0.0),
    "default_form": dict(SIZES, vocab_multiple=64, norm="rmsnorm", mlp="swiglu", position="rope", bias=False,
                         tie_weights=True, label_smoothing=0.1),
}


def head_dim(c):
    return c.get("head_dim", c["n_embd"] // c["n_head"])


def parameter_shapes(c):
    C, hidden, D = c["n_embd"], c["n_hidden"], head_dim(c)
    rows = -(-c["vocab_size"] // c["vocab_multiple"]) * c["vocab_multiple"]
    qkv = (c["n_head"] + 2 * c["n_kv_head"]) * D
    shapes = {"transformer.wte.weight": (rows, C)}
    if c["position"] == "learned":
        shapes["transformer.wpe.weight"] = (c["block_size"], C)
    mlp = {"c_fc": (hidden, C), "c_proj": (C, hidden)} if c["mlp"] in ("gelu", "relu2") else {
        "w1": (hidden, C), "w2": (C, hidden), "w3": (hidden, C)}
    for layer in range(c["n_layer"]):
        h = f"transformer.h.{layer}."
        place = c.get("norm_place", "input")
        if place != "output":
            shapes[h + "ln_1.weight"] = shapes[h + "ln_2.weight"] = (C,)
        if place != "input":
            shapes[h + "attn.out_norm.weight"] = shapes[h + "mlp.out_norm.weight"] = (C,)
        shapes[h + "attn.c_attn.weight"] = (qkv, C)
        if c.get("qk_norm"):
            heads = (c["n_head"], c["n_kv_head"]) if c["qk_norm"] == "all" else (1, 1)
            shapes[h + "attn.q_norm.weight"], shapes[h + "attn.k_norm.weight"] = (heads[0] * D,), (heads[1] * D,)
        shapes[h + "attn.c_proj.weight"] = (C, c["n_head"] * D)
        shapes |= {f"{h}mlp.{name}.weight": shape for name, shape in mlp.items()}
    shapes["transformer.ln_f.weight"] = (C,)
    if c["bias"]:
        shapes |= {name.replace(".weight", ".bias"): shape[:1] for name, shape in shapes.items()
                   if not name.endswith(("wte.weight", "wpe.weight"))}
    if not c["tie_weights"]:
        shapes["lm_head.weight"] = (rows, C)
    return shapes


def random_parameters(c):
    generator = torch.Generator().manual_seed(20)
    parameters = {}
    for name, shape in parameter_shapes(c).items():
        value = torch.randn(shape, generator=generator, dtype=torch.float32) * (0.15 if len(shape) == 2 else 0.1)
        is_factor = (".ln_" in name or "_norm." in name) and name.endswith("weight") and not c.get("is_gemma")
        parameters[name] = value + 1 if is_factor else value
    return parameters


def normalize(x, c, p, name):
    weight, bias = p[name + ".weight"], p.get(name + ".bias", 0.0)
    if c["norm"] == "layernorm":
        x = x - x.mean(-1, keepdim=True)
    factor = 1 + weight if c.get("is_gemma") else weight
    return x / (x.pow(2).mean(-1, keepdim=True) + c["norm_eps"]).sqrt() * factor + bias


def linear(x, p, name):
    return x @ p[name + ".weight"].T + p.get(name + ".bias", 0.0)


def rotate(x, theta):
    """x (B, heads, T, D): channels i and i + D/2 are the real and the imaginary part of one number."""
    T, half = x.shape[2], x.shape[3] // 2
    angle = torch.arange(T).double()[:, None] * theta ** (-torch.arange(half).double() / half)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], -1)


def attention(x, c, p, name, window):
    B, T, C = x.shape
    H, Hkv, D = c["n_head"], c["n_kv_head"], head_dim(c)
    q, k, v = linear(x, p, name + ".c_attn").split([H * D, Hkv * D, Hkv * D], -1)
    if c.get("qk_norm") == "all":
        q, k = normalize(q, c, p, name + ".q_norm"), normalize(k, c, p, name + ".k_norm")
    q, k, v = (t.reshape(B, T, -1, D).permute(0, 2, 1, 3) for t in (q, k, v))
    if c.get("qk_norm") == "heads":
        q, k = normalize(q, c, p, name + ".q_norm"), normalize(k, c, p, name + ".k_norm")
    if c["position"] == "rope":
        theta = c["rope_window_theta"] if window else c["rope_theta"]
        q, k = rotate(q, theta), rotate(k, theta)
    k, v = (t.repeat_interleave(H // Hkv, dim=1) for t in (k, v))
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(D)
    scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
    if window:
        scores = scores.masked_fill(torch.ones(T, T).tril(-window).bool(), -math.inf)
    y = torch.einsum("bhij,bhjd->bihd", scores.softmax(-1), v).reshape(B, T, H * D)
    return linear(y, p, name + ".c_proj")


def feed_forward(x, c, p, name):
    if c["mlp"] == "gelu":
        u = linear(x, p, name + ".c_fc")
        return linear(0.5 * u * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))), p, name + ".c_proj")
    if c["mlp"] == "relu2":
        u = linear(x, p, name + ".c_fc")
        return linear(torch.where(u > 0, u, 0 * u)**2, p, name + ".c_proj")
    gate = linear(x, p, name + ".w1")
    if c["mlp"] == "geglu":
        return linear(F.gelu(gate, approximate="tanh") * linear(x, p, name + ".w3"), p, name + ".w2")
    return linear(gate * torch.sigmoid(gate) * linear(x, p, name + ".w3"), p, name + ".w2")


def logits_of(ids, c, p):
    x = p["transformer.wte.weight"][ids] * (math.sqrt(c["n_embd"]) if c.get("is_gemma") else 1)
    place = c.get("norm_place", "input")
    before = lambda x, name: x if place == "output" else normalize(x, c, p, name)
    after = lambda x, name: x if place == "input" else normalize(x, c, p, name)
    if c["position"] == "learned":
        x = x + p["transformer.wpe.weight"][: ids.shape[1]]
    for layer in range(c["n_layer"]):
        h = f"transformer.h.{layer}."
        pattern = c.get("window_pattern", "L")
        window = c["window"] if pattern[layer % len(pattern)] == "S" else 0
        x = x + after(attention(before(x, h + "ln_1"), c, p, h + "attn", window), h + "attn.out_norm")
        x = x + after(feed_forward(before(x, h + "ln_2"), c, p, h + "mlp"), h + "mlp.out_norm")
    head = p["transformer.wte.weight" if c["tie_weights"] else "lm_head.weight"]
    return normalize(x, c, p, "transformer.ln_f") @ head[: c["vocab_size"]].T


def loss_of(batch, c, p):
    logits = logits_of(batch[:, :-1], c, p)
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), label_smoothing=c["label_smoothing"])


def learning_rate(step):
    t = TRAINING
    if step < WARMUP:
        return t["learning_rate"] * (step + 1) / (WARMUP + 1)
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return t["min_lr"] + (t["learning_rate"] - t["min_lr"]) * 0.5 * (1 + math.cos(math.pi * progress))


def make_fixture(c):
    initial = random_parameters(c)
    p = {name: value.double().requires_grad_() for name, value in initial.items()}
    batches = torch.randint(c["vocab_size"], (STEPS, BATCH, c["block_size"] + 1), generator=torch.Generator().manual_seed(21))
    optimizer = torch.optim.AdamW(
        [{"params": [v for v in p.values() if v.dim() >= 2], "weight_decay": TRAINING["weight_decay"]},
         {"params": [v for v in p.values() if v.dim() < 2], "weight_decay": 0.0}],
        betas=(TRAINING["beta1"], TRAINING["beta2"]), eps=TRAINING["eps"], foreach=False)
    tensors = {"batches": batches} | {f"initial.{name}": value for name, value in initial.items()}
    tensors["logits"] = logits_of(batches[0, :, :-1], c, p).detach()
    losses = []
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        loss = loss_of(batch, c, p)
        loss.backward()
        if step == 0:
            tensors |= {f"gradient.{name}": value.grad.float() for name, value in p.items()}
        torch.nn.utils.clip_grad_norm_(p.values(), TRAINING["gradient_clip"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        losses.append(loss.item())
    tensors["losses"] = torch.tensor(losses, dtype=torch.float64)
    return tensors | {f"final.{name}": value.detach().float() for name, value in p.items()}


def write_safetensors(path, tensors, metadata):
    dtypes = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}
    header, payload = {"__metadata__": {key: str(value) for key, value in metadata.items()}}, b""
    for name, tensor in tensors.items():
        data = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": dtypes[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(payload), len(payload) + len(data)]}
        payload += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + payload)


def check_against_transformers():
    import transformers

    print("transformers", transformers.__version__)
    ids = torch.randint(97, (3, 16), generator=torch.Generator().manual_seed(22))
    for form, reference, bound in (("gpt2_form", gpt2_from_transformers, 1e-13), ("llama_form", llama_from_transformers, 5e-6),
                                   ("qwen3_form", qwen3_from_transformers, 5e-6),
                                   ("gemma3_form", gemma3_from_transformers, 2e-5),
                                   ("olmo2_form", olmo2_from_transformers, 5e-6),
                                   ("arcee_form", arcee_from_transformers, 5e-6)):
        c = FORMS[form]
        p = {name: value.double() for name, value in random_parameters(c).items()}
        with torch.no_grad():
            difference = (reference(transformers, c, p)(ids).logits - logits_of(ids, c, p)).abs().max().item()
        print(f"{form}: largest difference of a logit {difference:.1e}")
        assert difference < bound


def gpt2_from_transformers(transformers, c, p):
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=c["vocab_size"], n_positions=c["block_size"], n_embd=c["n_embd"], n_layer=c["n_layer"],
        n_head=c["n_head"], n_inner=c["n_hidden"], activation_function="gelu_new",
        bos_token_id=None, eos_token_id=None)).double().eval()
    state = {name: value.T if ".h." in name and value.dim() == 2 else value for name, value in p.items()}  # their Conv1D
    state["transformer.wte.weight"] = state["transformer.wte.weight"][: c["vocab_size"]]
    state["lm_head.weight"] = state["transformer.wte.weight"]
    model.load_state_dict(state)
    return model


def llama_from_transformers(transformers, c, p):
    return with_weights(transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings(c))), c, p)


def qwen3_from_transformers(transformers, c, p):
    return with_weights(transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**settings(c))), c, p)


def gemma3_from_transformers(transformers, c, p):
    types = {"S": "sliding_attention", "L": "full_attention"}
    rope = {"sliding_attention": c["rope_window_theta"], "full_attention": c["rope_theta"]}
    config = transformers.Gemma3TextConfig(
        **settings(c), sliding_window=c["window"], query_pre_attn_scalar=head_dim(c),
        layer_types=[types[c["window_pattern"][i % len(c["window_pattern"])]] for i in range(c["n_layer"])],
        rope_parameters={name: {"rope_type": "default", "rope_theta": theta} for name, theta in rope.items()})
    return with_weights(transformers.Gemma3ForCausalLM(config), c, p)


def olmo2_from_transformers(transformers, c, p):
    return with_weights(transformers.Olmo2ForCausalLM(transformers.Olmo2Config(**settings(c))), c, p)


def arcee_from_transformers(transformers, c, p):
    return with_weights(transformers.ArceeForCausalLM(transformers.ArceeConfig(**settings(c))), c, p)


def settings(c):
    return dict(
        vocab_size=c["vocab_size"], max_position_embeddings=c["block_size"], hidden_size=c["n_embd"],
        intermediate_size=c["n_hidden"], num_hidden_layers=c["n_layer"], num_attention_heads=c["n_head"],
        num_key_value_heads=c["n_kv_head"], head_dim=head_dim(c), rms_norm_eps=c["norm_eps"],
        tie_word_embeddings=c["tie_weights"])


def with_weights(model, c, p):
    model.double().eval()
    D, head = head_dim(c), "transformer.wte.weight" if c["tie_weights"] else "lm_head.weight"
    state = {"model.embed_tokens.weight": p["transformer.wte.weight"], "model.norm.weight": p["transformer.ln_f.weight"],
             "lm_head.weight": p[head]}
    for i in range(c["n_layer"]):
        ours, theirs = f"transformer.h.{i}.", f"model.layers.{i}."
        q, k, v = p[ours + "attn.c_attn.weight"].split([c["n_head"] * D, c["n_kv_head"] * D, c["n_kv_head"] * D])
        state |= {theirs + "self_attn.q_proj.weight": q, theirs + "self_attn.k_proj.weight": k,
                  theirs + "self_attn.v_proj.weight": v, theirs + "self_attn.o_proj.weight": p[ours + "attn.c_proj.weight"]}
        products = {"up_proj": "c_fc", "down_proj": "c_proj"} if c["mlp"] == "relu2" else {
            "gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
        state |= {f"{theirs}mlp.{name}.weight": p[f"{ours}mlp.{own}.weight"] for name, own in products.items()}
        norms = {"input": {"input_layernorm": "ln_1", "post_attention_layernorm": "ln_2"},
                 "output": {"post_attention_layernorm": "attn.out_norm", "post_feedforward_layernorm": "mlp.out_norm"},
                 "both": {"input_layernorm": "ln_1", "post_attention_layernorm": "attn.out_norm",
                          "pre_feedforward_layernorm": "ln_2", "post_feedforward_layernorm": "mlp.out_norm"}}
        state |= {f"{theirs}{name}.weight": p[f"{ours}{own}.weight"]
                  for name, own in norms[c.get("norm_place", "input")].items()}
        if c.get("qk_norm"):
            state |= {theirs + f"self_attn.{name}.weight": p[ours + f"attn.{name}.weight"] for name in ("q_norm", "k_norm")}
    model.load_state_dict(state)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare the reference with transformers; write nothing")
    if parser.parse_args().check:
        return check_against_transformers()
    torch.set_num_threads(1)
    DATA.mkdir(parents=True, exist_ok=True)
    for form, c in FORMS.items():
        path = DATA / f"{form}.safetensors"
        write_safetensors(path, make_fixture(c), c | TRAINING)
        print(path.relative_to(DATA.parent.parent), path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
