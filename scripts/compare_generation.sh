#!/usr/bin/env bash
# The speed of generation beside llama.cpp and transformers, with the same weights: GPT-2 124M as it is drawn, in float32 and bfloat16, for
# one text, for sixteen and for a prompt of 512 tokens. The programs take turns, and each ratio is that of neighbouring turns. Beside each
# speed stands the bandwidth that it amounts to, as a share of what reading as many bytes once takes with as many threads. Takes about ten
# minutes on two cores, needs 5 GB of memory and what scripts/setup.sh --oracles installs.
# usage: scripts/compare_generation.sh [ROUNDS [THREADS]]     5 rounds with all processors if nothing is given
set -euo pipefail
source "$(dirname "$0")/steps.sh"
python=${PYTHON:-.deps/venv/bin/python}
[[ -x build/bin/gpt-generate ]] && "$python" -c 'import transformers, xllamacpp' 2>/dev/null ||
  fail "what generation is compared with is missing: run scripts/setup.sh --oracles first"
exec "$python" -B scripts/compare_generation.py "$@"
