#!/usr/bin/env bash
# How many updates other optimizers take to the loss that AdamW ends with, each with the best of five learning rates: compare_optimizers.py
# says how it is measured.
# usage: scripts/compare_optimizers.sh FILE [gpt-train flags...]      e.g. scripts/compare_optimizers.sh shakespeare.txt --batch_size 48
# MODEL (nanogpt_cpu) names a file in configs, OPTIMIZERS ("muon normuon") what is compared, STEPS (1000) the updates of AdamW's runs, RATES
# ("5e-4 1e-3 2e-3 4e-3 8e-3") the grid, SHARES ("0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1") of STEPS the lengths of the others' runs, SEEDS
# ("2 3 4") those of all runs after the choice of the rate, OUT (a temporary folder) where the runs are kept: what is there is not computed
# again.
set -euo pipefail
text=$(realpath "${1:?usage: scripts/compare_optimizers.sh FILE [gpt-train flags...]}"); shift
source "$(dirname "$0")/steps.sh"
[[ -x build/bin/gpt-train ]] || fail "build/bin/gpt-train is missing: run ./scripts/quickstart.sh first"
exec "$(python_with_torch)" -B scripts/compare_optimizers.py "$text" "$@"
