#!/usr/bin/env bash
# From a bare machine to a trained model that writes: set-up, the default corpus, training, samples.
# On two cores it takes about eight minutes, most of it for the first build; run again, it continues where it stopped.
#
# usage: scripts/quickstart.sh [--cpu|--cuda]     (without: CUDA where there is a GPU or an nvcc, see setup.sh)
set -euo pipefail
source "$(dirname "$0")/steps.sh"
source scripts/machine.sh

scripts/setup.sh "$@"
scripts/get_data.sh

model=shakespeare_char
if grep -q '^GPT_CUDA:.*=ON' build/CMakeCache.txt && [[ $(usable_gpus 2>/dev/null) ]]; then
  model=shakespeare_char_gpu
fi
say "
Training configs/$model.yaml (Ctrl-C saves and stops; the same command continues)"
build/bin/gpt-train --config configs/$model.yaml --output_dir models/$model
say "
What it writes now:
"
build/bin/gpt-generate --checkpoint models/$model/ckpt.pt --prompt '' --num-samples 2 --max-new-tokens 400 --temperature 0.8

cat <<TEXT

Next:
  build/bin/gpt-generate --checkpoint models/$model --prompt "ROMEO." --top-p 0.9     continue a text
  build/bin/gpt-generate --checkpoint models/$model --interactive                     continue what you type, line by line
  build/bin/gpt-train --data your.txt                                                 train on your own text, into models/your
  build/bin/gpt-train --data your.txt                                                 the same command again continues a stopped run
  build/bin/gpt-diagnose --data your.txt                                              check machine, data and settings beforehand
  ./scripts/install.sh                                                                put the programs on your PATH
TEXT
