#!/usr/bin/env bash
# Speed against PyTorch: alternates gpt-train and scripts/pytorch_baseline.py, the same training run as a plain eager PyTorch
# program in float32 and in bfloat16, and prints the ratios of their median tokens/s (without start-up and warm-up); the last
# line is the ratio to the faster one.
# usage: scripts/compare_pytorch.sh FILE [gpt-train flags...]     e.g. scripts/compare_pytorch.sh tinyshakespeare.txt --mlp swiglu
# ROUNDS (5) and STEPS (200) set how long it measures, CONFIG (configs/nanogpt_cpu.yaml) what it measures.
set -euo pipefail
text=$(realpath "${1:?usage: scripts/compare_pytorch.sh FILE [gpt-train flags...]}"); shift
cd "$(dirname "$0")/.."
train=build/bin/gpt-train python=.deps/venv/bin/python
[ -x $train ] || { echo "$train is missing: run ./scripts/quickstart.sh first" >&2; exit 1; }
[ -r "$text" ] || { echo "$text: cannot be read" >&2; exit 1; }
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT

$train --config "${CONFIG:-configs/nanogpt_cpu.yaml}" --data.text "$text" --max_steps "${STEPS:-200}" --log_interval 20 \
  --eval_interval 0 --checkpoint_interval 0 --sample_interval 0 --threads "$(nproc)" "$@" --print-config >"$out/config.yaml"

# usage: median FILE...   of tokens_per_second over the logged intervals of 20 steps, the first of each run left out
median() {
  sed -n 's/.*"step": *\([0-9]*\),.*"tokens_per_second": *\([0-9.e+]*\).*/\1 \2/p' "$@" | awk '$1 > 20 && $1 % 20 == 0 { print $2 }' | sort -g |
    awk '{ rate[NR] = $1 } END { printf "%.0f\n", (rate[int((NR + 1) / 2)] + rate[int(NR / 2) + 1]) / 2 }'
}
ratio() { awk -v ours="$1" -v theirs="$2" 'BEGIN { printf "%.2f\n", ours / theirs }'; }

# Without instructions for it, bfloat16 is emulated, some twenty times slower than float32.
dtypes=(float32)
if grep -qwE 'avx512_bf16|amx_bf16|bf16' /proc/cpuinfo; then dtypes+=(bfloat16); else echo "This CPU has no bfloat16 instructions: PyTorch is measured in float32 only."; fi

for ((round = 1; round <= ${ROUNDS:-5}; round++)); do
  $train --config "$out/config.yaml" --output_dir "$out/run$round" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
  mv "$out/run$round/metrics.jsonl" "$out/ours$round.jsonl"
  rm -rf "$out/run$round"
  line="round $round: gpt-train $(median "$out/ours$round.jsonl") tokens/s"
  for dtype in "${dtypes[@]}"; do
    $python -B scripts/pytorch_baseline.py --config "$out/config.yaml" --text "$text" --dtype $dtype --metrics "$out/$dtype$round.jsonl" >/dev/null
    line+=", PyTorch $dtype $(median "$out/$dtype$round.jsonl")"
  done
  echo "$line"
done
ours=$(median "$out"/ours*.jsonl) fastest=0
for dtype in "${dtypes[@]}"; do
  theirs=$(median "$out/$dtype"*.jsonl)
  echo "against PyTorch $dtype $(ratio "$ours" "$theirs")x"
  ((theirs > fastest)) && fastest=$theirs
done
echo "ratio $(ratio "$ours" "$fastest")x"
