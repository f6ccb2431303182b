#!/usr/bin/env bash
# Whether a pruned model that is trained on is better than one from which as much was removed by chance, and than one of its size that is
# trained from scratch for as many updates; and whether it is as fast as its operations say. compare_pruning.py says how it is measured.
# usage: scripts/compare_pruning.sh FILE [gpt-train flags...]      e.g. scripts/compare_pruning.sh shakespeare.txt --tokenizer char
# Models of characters must see all of the file, since gpt-prune reads it too.
# MODEL (nanogpt_cpu) names a file in configs, AMOUNTS ("--mlp 25% --heads 1 --layers 1") what gpt-prune removes, STEPS (2000) the updates
# of the large model, RECOVERY (200) those of the small ones, RATES ("2.5e-4 5e-4 1e-3 2e-3 4e-3 8e-3 1.6e-2") their learning rates, SEEDS
# ("1 2 3") those of all runs, ROUNDS (5) of timing, OUT (a temporary folder) where the runs are kept: what is there is not computed again.
set -euo pipefail
text=$(realpath "${1:?usage: scripts/compare_pruning.sh FILE [gpt-train flags...]}"); shift
source "$(dirname "$0")/steps.sh"
[[ -x build/bin/gpt-prune ]] || fail "build/bin/gpt-prune is missing: run ./scripts/quickstart.sh first"
exec "$(python_with_torch)" -B scripts/compare_pruning.py "$text" "$@"
