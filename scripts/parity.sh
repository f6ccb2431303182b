#!/usr/bin/env bash
# Quality against nanoGPT's published CPU settings: trains configs/nanogpt_cpu.yaml on FILE, split 90/10, with three seeds
# and prints the median loss over the whole validation split.
# usage: scripts/parity.sh FILE [gpt-train flags...]      e.g. scripts/parity.sh tinyshakespeare.txt --mlp swiglu
set -euo pipefail
text=$(realpath "${1:?usage: scripts/parity.sh FILE [gpt-train flags...]}"); shift
cd "$(dirname "$0")/.."
[ -x build/bin/gpt-train ] || { echo "build/bin/gpt-train is missing: run ./scripts/quickstart.sh first" >&2; exit 1; }
[ -r "$text" ] || { echo "$text: cannot be read" >&2; exit 1; }
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT

for seed in 1 2 3; do
  build/bin/gpt-train --config configs/nanogpt_cpu.yaml --data.text "$text" --seed "$seed" --output_dir "$out/$seed" "$@" \
    >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
  loss=$(sed -n 's/.*"val_loss":\([0-9.]*\).*/\1/p' "$out/$seed/metrics.jsonl" | tail -n 1)
  echo "seed $seed: val loss $loss"
  echo "$loss" >>"$out/losses"
done
echo "median val loss $(sort -n "$out/losses" | sed -n 2p)"
