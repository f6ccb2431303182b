#!/usr/bin/env bash
# How good the learning rates are that gpt-train --find-lr picks: models of three sizes, each with batches of two sizes, are trained at eight
# rates, at the default rate and at the picked one. Prints the validation losses, and how far the pick is from the best of the eight. Losses
# only: nothing here depends on how busy the machine is.
# usage: scripts/compare_learning_rates.sh FILE [gpt-train flags...]
# SIZES ("2x64 4x128 6x192") layers x width, BATCHES ("4 16") sequences of 64 tokens, STEPS (600) the length of a run, SEEDS ("1"), RESULTS
# (build/learning_rates.jsonl) where runs are kept, so that an interrupted comparison goes on.
set -euo pipefail
text=$(realpath "${1:?usage: scripts/compare_learning_rates.sh FILE [gpt-train flags...]}"); shift
source "$(dirname "$0")/steps.sh"
[[ -x build/bin/gpt-train ]] || fail "build/bin/gpt-train is missing: run ./scripts/quickstart.sh first"
[[ -r $text ]] || fail "$text: cannot be read"
exec python3 -B scripts/compare_learning_rates.py --text "$text" --sizes ${SIZES:-2x64 4x128 6x192} --batches ${BATCHES:-4 16} \
  --steps "${STEPS:-600}" --seeds ${SEEDS:-1} --results "${RESULTS:-build/learning_rates.jsonl}" -- "$@"
