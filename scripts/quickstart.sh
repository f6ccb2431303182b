#!/usr/bin/env bash
# From a bare machine to a trained model that talks: set-up, the default corpus, training, samples.
# On two cores it takes some quarter of an hour, most of it the first build; run again, it goes on where it was.
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
Training configs/$model.yaml (Ctrl-C saves and stops; the same command goes on)"
build/bin/gpt-train --config configs/$model.yaml --output_dir models/$model
say "
What it writes now:
"
build/bin/gpt-generate --checkpoint models/$model/ckpt.pt --prompt '' --num-samples 2 --max-new-tokens 400 --temperature 0.8

cat <<TEXT

Next:
  build/bin/gpt-generate --checkpoint models/$model/ckpt.pt --prompt "ROMEO." --top-p 0.9     continue a text
  build/bin/gpt-generate --checkpoint models/$model/ckpt.pt --interactive                     talk with it
  build/bin/gpt-train --config configs/$model.yaml --data your.txt --output_dir models/mine   train on your own text
  build/bin/gpt-train --config configs/$model.yaml --data your.txt --output_dir models/mine   again: goes on where it stopped
  build/bin/gpt-diagnose --config configs/$model.yaml                                         check machine, data and settings
  ./scripts/install.sh                                                                        put the programs on your PATH
TEXT
