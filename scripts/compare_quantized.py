#!/usr/bin/env python3
"""Models of 8 and 4 bits against float32, llama.cpp and CTranslate2; scripts/compare_quantized.sh says what for. No network is used."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import ctranslate2
import gguf
import numpy
import safetensors.numpy
import transformers
import xllamacpp

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("GPT_BIN", ROOT / "build" / "bin"))
WINDOWS, ROUNDS, TOKENS = int(os.environ.get("WINDOWS", 16)), 5, 128
THREADS = int(os.environ.get("GPT_THREADS", os.cpu_count()))
GGML = gguf.GGMLQuantizationType
PROMPT = "The"
OURS_INT8 = "int8"


def run(program, *words):
    done = subprocess.run([BIN / program, *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{program} failed: {done.stderr.strip()}")
    return done.stdout


def rounded(values, quantization):
    if quantization == OURS_INT8:  # without rounding activations: by the definition in gpt/products/quantized_weight.h
        groups = numpy.split(values, range(64, values.shape[1], 64), axis=1)
        scales = [numpy.maximum(numpy.abs(group).max(1, keepdims=True) / 127, 1e-30) for group in groups]
        return numpy.concatenate([numpy.rint(group / scale) * scale for group, scale in zip(groups, scales)], axis=1).astype(numpy.float32)
    return gguf.quants.dequantize(gguf.quants.quantize(values, quantization), quantization).astype(numpy.float32)


def with_rounded(exported, folder, quantization):
    """A copy of an exported folder with rounded matrices. Table and head have 8 bits in any case, as ours."""
    shutil.copytree(exported, folder)
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    is_gpt2 = json.loads((folder / "config.json").read_text())["model_type"] == "gpt2"
    for name, values in tensors.items():
        if values.ndim != 2 or "wpe" in name:
            continue
        is_table = any(part in name for part in ("wte", "embed_tokens", "lm_head"))
        is_turned = is_gpt2 and not is_table  # [in, out]
        matrix = numpy.ascontiguousarray(values.T if is_turned else values)
        matrix = rounded(matrix, GGML.Q8_0 if is_table and quantization == GGML.Q4_0 else quantization)
        tensors[name] = numpy.ascontiguousarray(matrix.T if is_turned else matrix)
    safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})
    return folder


def compare_quality(checkpoint, text, scratch):
    exported = scratch / "exported"
    run("gpt-export", "--checkpoint", checkpoint, "--output", exported)
    copies = {name: with_rounded(exported, scratch / name, quantization)
              for name, quantization in (("int8", OURS_INT8), ("q8_0", GGML.Q8_0), ("q4_0", GGML.Q4_0))}
    models = {f"{checkpoint}:float32": "float32", f"{checkpoint}:bfloat16": "bfloat16",
              f"{copies['int8']}:float32": "int8, exact activations", f"{checkpoint}:int8": "int8",
              f"{copies['q8_0']}:float32": "q8_0 of gguf", f"{checkpoint}:int4": "int4", f"{copies['q4_0']}:float32": "q4_0 of gguf"}
    print(f"{'weights':>24} {'perplexity':>11} {'':>9} {'divergence':>11} {'same top':>9}")
    reference = None
    for line in run("compare_logits", text, WINDOWS, *models).splitlines():
        found = json.loads(line)
        reference = reference or found["perplexity"]
        change = 100 * (found["perplexity"] / reference - 1)
        print(f"{models[found['model']]:>24} {found['perplexity']:11.4f} {change:+8.3f}% {found['divergence']:11.6f} "
              f"{100 * found['same_top']:8.2f}%", flush=True)


def as_q4_0(path, output):
    """A GGUF file in float32 with its matrices in Q4_0, but for tables and head, which llama.cpp would keep larger too: Q8_0."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(output, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type", "general.quantization_version"):
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for tensor in reader.tensors:
        values = numpy.array(tensor.data, numpy.float32)
        if values.ndim != 2 or "position" in tensor.name:
            writer.add_tensor(tensor.name, values)
            continue
        kind = GGML.Q8_0 if tensor.name in ("token_embd.weight", "output.weight") else GGML.Q4_0
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    """llama.cpp's server, whose addresses are those of this machine."""

    def __init__(self, path):
        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel, params.port = str(path), 512, 1, 0
        params.cpuparams.n_threads, params.warmup, params.fit_params, params.verbosity = THREADS, True, False, 0
        self.server = xllamacpp.Server(params)

    def tokens_per_second(self):
        body = {"prompt": PROMPT, "n_predict": TOKENS, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
        request = urllib.request.Request(self.server.listening_address + "/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["timings"]["predicted_per_second"]


class CTranslate2:
    """Its generator in 8 bits, weights and activations, for a model that was exported for transformers. The time includes that of the
    prompt, which is a single token."""

    def __init__(self, exported, folder):
        ctranslate2.converters.TransformersConverter(str(exported)).convert(str(folder), quantization="int8")
        self.generator = ctranslate2.Generator(str(folder), device="cpu", compute_type="int8", inter_threads=1, intra_threads=THREADS)
        self.prompt = transformers.AutoTokenizer.from_pretrained(exported).tokenize(PROMPT)

    def tokens_per_second(self):
        begin = time.perf_counter()
        result, = self.generator.generate_batch([self.prompt], min_length=TOKENS, max_length=TOKENS, sampling_topk=1,
                                                include_prompt_in_result=False)
        seconds = time.perf_counter() - begin
        if len(result.sequences_ids[0]) != TOKENS:
            sys.exit(f"CTranslate2 wrote {len(result.sequences_ids[0])} tokens instead of {TOKENS}")
        return TOKENS / seconds


def our_speed(model):
    return json.loads(run("gpt-generate", "--checkpoint", model, "--device", "cpu", "--threads", THREADS, "--max-new-tokens", TOKENS,
                          "--temperature", 0, "--json", "--prompt", PROMPT))["tokens_per_second"]


def compare_speed(checkpoint, scratch):
    files = {name: scratch / f"{name}.gguf" for name in ("float32", "q8_0")} | {name: scratch / f"{name}.pt" for name in ("int8", "int4")}
    for name, path in files.items():
        form = "gguf" if path.suffix == ".gguf" else "quantized"
        run("gpt-export", "--checkpoint", checkpoint, "--format", form, "--output", path, "--dtype", name)
    as_q4_0(files["float32"], scratch / "q4_0.gguf")
    exported = scratch / "for_transformers"
    run("gpt-export", "--checkpoint", checkpoint, "--output", exported)
    print(f"\n{'ours':>8} {'theirs':>18} {'tokens/s':>9} {'tokens/s':>9} {'ratio':>7}   "
          f"medians of {ROUNDS} alternating runs of {TOKENS} tokens, threads: {THREADS}")
    for ours, theirs, begin in (("int8", "llama.cpp q8_0", lambda: LlamaCpp(scratch / "q8_0.gguf")),
                                ("int8", "CTranslate2 int8", lambda: CTranslate2(exported, scratch / "int8_of_ctranslate2")),
                                ("int4", "llama.cpp q4_0", lambda: LlamaCpp(scratch / "q4_0.gguf"))):
        program = begin()
        program.tokens_per_second()
        pairs = [(our_speed(files[ours]), program.tokens_per_second()) for _ in range(ROUNDS)]
        ratio = statistics.median(own / other for own, other in pairs)
        medians = [statistics.median(speeds) for speeds in zip(*pairs)]
        print(f"{ours:>8} {theirs:>18} {medians[0]:9.1f} {medians[1]:9.1f} {ratio:6.2f}x", flush=True)


def main():
    checkpoint, text, *parts = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if "speed" not in parts:
            compare_quality(checkpoint, text, pathlib.Path(folder))
        if "quality" not in parts:
            compare_speed(checkpoint, pathlib.Path(folder))


main()
