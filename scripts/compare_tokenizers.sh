#!/usr/bin/env bash
# Tokenizers against tiktoken 0.14 and Hugging Face tokenizers 0.23: first checks that the ids of the default corpus, of 50 MB
# of mixed text and of 100,000 random strings do not differ, then measures the speed in turn, with one thread each. The last
# line is the ratio. Takes some minutes; needs what scripts/setup.sh --tests installs.
# usage: scripts/compare_tokenizers.sh [FILE...]     FILE: what the speed is measured on; the default corpus if none is given
set -euo pipefail
files=()
for file; do files+=("$(realpath "$file")"); done
cd "$(dirname "$0")/.."
python=.deps/venv/bin/python
[ -x build/bin/encode_file ] && $python -c 'import tiktoken, tokenizers' 2>/dev/null ||
  { echo "build/bin/encode_file, tiktoken or tokenizers is missing: run scripts/setup.sh --tests first" >&2; exit 1; }
$python -B scripts/compare_tokenizers.py ids
$python -B scripts/compare_tokenizers.py speed "${files[@]}"
