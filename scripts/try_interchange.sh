#!/usr/bin/env bash
# Whether other programs make of an exported model what gpt-export wrote. Trains small models of both forms with each kind of tokenizer and
# compares logits, ids and greedy text with transformers, CTranslate2 and llama.cpp, and each file with what the package gguf reads and
# quantizes. Last comes a real model, SmolLM2-135M: from its GGUF through transformers and gpt-train back to GGUF. Takes about ten minutes
# on two cores, needs 4 GB of memory and what scripts/setup.sh --oracles installs, and ends with 1 if anything differs.
# usage: scripts/try_interchange.sh [NAME...]     NAME: only these parts, such as llama-char, gpt2-bpe or smollm2
set -euo pipefail
source "$(dirname "$0")/steps.sh"
python=.deps/venv/bin/python
[[ -x build/bin/write_logits ]] && $python -c 'import ctranslate2, gguf, tiktoken, transformers, xllamacpp' 2>/dev/null ||
  fail "what models are tried with is missing: run scripts/setup.sh --oracles first"
exec "$python" -B scripts/try_interchange.py "$@"
