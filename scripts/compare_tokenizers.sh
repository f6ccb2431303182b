#!/usr/bin/env bash
# Tokenizers against tiktoken 0.14, Hugging Face tokenizers 0.23 and, where it is installed (pip install gigatoken==0.10.0), gigatoken:
# first checks that the ids of the default corpus, of 50 MB of mixed text and of 100,000 random strings do not differ, then measures the
# speed in turn: of the first pass, with empty caches, and of later ones, one thread each, and of two threads. The last line is the ratio.
# Takes some minutes; needs what scripts/setup.sh --tests installs.
# usage: scripts/compare_tokenizers.sh [FILE...]     FILE: what the speed is measured on; the default corpus if none is given.
#        Dictionaries of dictd are one text together: /usr/share/dictd/{gcide,wn}.dict.dz of Debian's dict-gcide and dict-wn
set -euo pipefail
files=()
for file; do files+=("$(realpath "$file")"); done
cd "$(dirname "$0")/.."
python=.deps/venv/bin/python
[ -x build/bin/encode_file ] && $python -c 'import tiktoken, tokenizers' 2>/dev/null ||
  { echo "build/bin/encode_file, tiktoken or tokenizers is missing: run scripts/setup.sh --tests first" >&2; exit 1; }
$python -B scripts/compare_tokenizers.py ids
$python -B scripts/compare_tokenizers.py speed "${files[@]}"
