#!/usr/bin/env bash
# BPE training against Hugging Face tokenizers and, where they are installed (pip install gigatoken==0.10.0 rustbpe==0.1.0), gigatoken and
# rustbpe: one thread each, on the default corpus (vocabulary 8,192) and on 200 MB of generated word-like text (32,768). Checks that merges
# and ids are Hugging Face's, says where the others part, and prints the ratios of the times.
# usage: scripts/compare_bpe_training.sh            (after scripts/setup.sh --tests and scripts/get_data.sh)
#        scripts/compare_bpe_training.sh --large    our time alone for 1 GB and 50,000 merges, on all cores
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.deps/venv/bin/python}
[[ -x build/bin/train_bpe_file ]] || { echo "build/bin/train_bpe_file is missing: run scripts/setup.sh --tests" >&2; exit 1; }
[[ -r data/shakespeare.txt ]] || { echo "data/shakespeare.txt is missing: run scripts/get_data.sh" >&2; exit 1; }
export RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
exec "$python" -B scripts/compare_bpe_training.py --trainer build/bin/train_bpe_file "$@"
