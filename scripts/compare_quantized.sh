#!/usr/bin/env bash
# What a checkpoint loses with weights of 8 and 4 bits, and what it gains. First the perplexity of a text, the divergence of its
# probabilities from float32's (Kullback-Leibler, in nats a token) and how often both find the same token the most probable; beside ours
# stand llama.cpp's q8_0 and q4_0 of the same matrices, as the package gguf rounds them, computed by the same program. Then tokens per
# second of gpt-generate, of llama.cpp and of CTranslate2, in alternating runs. Needs what scripts/setup.sh --oracles installs; the rows of
# all matrices must be multiples of 32.
# usage: scripts/compare_quantized.sh CHECKPOINT TEXT [quality|speed]
# WINDOWS (16) of at most 256 tokens of the text are read, and GPT_THREADS (all processors) generate.
set -euo pipefail
[[ $# -ge 2 ]] || { echo "usage: scripts/compare_quantized.sh CHECKPOINT TEXT [quality|speed]" >&2; exit 1; }
words=("$(realpath "$1")" "$(realpath "$2")" "${@:3}")
source "$(dirname "$0")/steps.sh"
python=${GPT_PYTHON:-.deps/venv/bin/python}
[[ -x build/bin/compare_logits ]] && $python -c 'import ctranslate2, gguf, safetensors, transformers, xllamacpp' 2>/dev/null ||
  fail "what models are compared with is missing: run scripts/setup.sh --oracles first"
exec "$python" -B scripts/compare_quantized.py "${words[@]}"
