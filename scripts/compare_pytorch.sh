#!/usr/bin/env bash
# Speed against PyTorch: alternates gpt-train and scripts/pytorch_baseline.py, the same training run as a plain eager PyTorch
# program, and prints the ratio of their median tokens/s (start and warm-up apart) as its last line.
# usage: scripts/compare_pytorch.sh FILE [gpt-train flags...]     e.g. scripts/compare_pytorch.sh tinyshakespeare.txt --mlp swiglu
# ROUNDS (5) and STEPS (200) change how long it measures, CONFIG (configs/nanogpt_cpu.yaml) what.
set -euo pipefail
text=$(realpath "${1:?usage: scripts/compare_pytorch.sh FILE [gpt-train flags...]}"); shift
cd "$(dirname "$0")/.."
train=build/bin/gpt-train python=.deps/venv/bin/python
[ -x $train ] || { echo "$train is missing: run ./scripts/quickstart.sh first" >&2; exit 1; }
[ -r "$text" ] || { echo "$text: cannot be read" >&2; exit 1; }
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT

$train --config "${CONFIG:-configs/nanogpt_cpu.yaml}" --data.text "$text" --max_steps "${STEPS:-200}" --log_interval 20 \
  --eval_interval 0 --checkpoint_interval 0 --sample_interval 0 --threads "$(nproc)" "$@" --print-config >"$out/config.yaml"

# usage: median FILE...   of tokens_per_second over the logged intervals, the first of each run left out
median() {
  for file; do sed -n 's/.*"tokens_per_second": *\([0-9.e+]*\).*/\1/p' "$file" | tail -n +2; done | sort -g |
    awk '{ rate[NR] = $1 } END { printf "%.0f\n", (rate[int((NR + 1) / 2)] + rate[int(NR / 2) + 1]) / 2 }'
}

for ((round = 1; round <= ${ROUNDS:-5}; round++)); do
  $train --config "$out/config.yaml" --output_dir "$out/run$round" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
  mv "$out/run$round/metrics.jsonl" "$out/ours$round.jsonl"
  rm -rf "$out/run$round"
  $python -B scripts/pytorch_baseline.py --config "$out/config.yaml" --text "$text" --metrics "$out/theirs$round.jsonl" >/dev/null
  echo "round $round: gpt-train $(median "$out/ours$round.jsonl") tokens/s, PyTorch $(median "$out/theirs$round.jsonl") tokens/s"
done
awk -v ours="$(median "$out"/ours*.jsonl)" -v theirs="$(median "$out"/theirs*.jsonl)" 'BEGIN { printf "ratio %.2fx\n", ours / theirs }'
