#!/usr/bin/env bash
# Speed against PyTorch: alternates gpt-train with scripts/pytorch_baseline.py, the same training run as a plain PyTorch program.
# PyTorch runs eagerly and with torch.compile, gpt-train with its own operators and without (use_compile), both in float32 and,
# on a CPU with instructions for it, in bfloat16 (ours end to end, PyTorch by autocast). All begin with the same weights and take the same
# batches. Prints a table with the median tokens/s (without start-up and warm-up), their ratio to PyTorch's fastest, and the loss of the last
# batch. The last lines are the largest difference of that loss from eager PyTorch's in float32, and the ratio of our fastest.
# usage: scripts/compare_pytorch.sh FILE [gpt-train flags...]     e.g. scripts/compare_pytorch.sh tinyshakespeare.txt --mlp swiglu
#        GPT-2 124M: CONFIG=configs/gpt2_124m.yaml STEPS=30 EVERY=5 scripts/compare_pytorch.sh FILE --block_size 64 --batch_size 4 \
#          --gradient_accumulation_steps 1 --vocab_size 50257
# ROUNDS (5) and STEPS (200) set how long it measures, EVERY (20) how many steps a figure covers, CONFIG
# (configs/nanogpt_cpu.yaml) what it measures.
set -euo pipefail
text=$(realpath "${1:?usage: scripts/compare_pytorch.sh FILE [gpt-train flags...]}"); shift
cd "$(dirname "$0")/.."
train=build/bin/gpt-train python=.deps/venv/bin/python every=${EVERY:-20}
[ -x $train ] || { echo "$train is missing: run ./scripts/quickstart.sh first" >&2; exit 1; }
[ -r "$text" ] || { echo "$text: cannot be read" >&2; exit 1; }
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT

$train --config "${CONFIG:-configs/nanogpt_cpu.yaml}" --data.text "$text" --tokenizer char --max_steps "${STEPS:-200}" --warmup_steps 10 \
  --log_interval "$every" --eval_interval 0 --checkpoint_interval 0 --sample_interval 0 --threads "$(nproc)" "$@" --print-config >"$out/config.yaml"

# The weights that a run of gpt-train begins with: a step with a learning rate of 0 leaves them as they are.
$train --config "$out/config.yaml" --output_dir "$out/initial" --max_steps 1 --learning_rate 0 --min_lr 0 --warmup_steps 0 --use_amp false \
  --dtype float32 >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }

# Without instructions for it, bfloat16 is emulated, fourteen to twenty times slower than float32.
dtypes=(float32)
if grep -qwE 'avx512_bf16|amx_bf16|bf16' /proc/cpuinfo; then dtypes+=(bfloat16); else echo "This CPU has no bfloat16 instructions: only float32 is measured."; fi
programs=(gpt-train gpt-train-uncompiled pytorch-eager pytorch-compiled)

# usage: run PROGRAM DTYPE ROUND   leaves its metrics in $out/PROGRAM-DTYPE-ROUND.jsonl
run() {
  local metrics=$out/$1-$2-$3.jsonl flags=()
  case $1 in
    gpt-train*)
      [[ $2 == float32 ]] && flags+=(--use_amp false --dtype auto) || flags+=(--use_amp true --dtype "$2")
      [[ $1 == gpt-train ]] && flags+=(--use_compile true) || flags+=(--use_compile false)
      $train --config "$out/config.yaml" --output_dir "$out/run" "${flags[@]}" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
      mv "$out/run/metrics.jsonl" "$metrics"
      rm -rf "$out/run"
      ;;
    pytorch*)
      [[ $1 == pytorch-eager ]] || flags+=(--compile)
      $python -B scripts/pytorch_baseline.py --config "$out/config.yaml" --text "$text" --initial "$out/initial/ckpt.pt" --dtype "$2" \
        "${flags[@]}" --metrics "$metrics" \
        >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
      ;;
  esac
}

# usage: median FILE...   of tokens_per_second over the intervals, the first of each run left out
median() {
  sed -n 's/.*"step": *\([0-9]*\),.*"tokens_per_second": *\([0-9.e+]*\).*/\1 \2/p' "$@" | awk -v every="$every" '$1 > every && $1 % every == 0 { print $2 }' |
    sort -g | awk '{ rate[NR] = $1 } END { printf "%.0f\n", (rate[int((NR + 1) / 2)] + rate[int(NR / 2) + 1]) / 2 }'
}
ratio() { awk -v ours="$1" -v theirs="$2" 'BEGIN { printf "%.2f\n", ours / theirs }'; }
last_loss() { grep -h '"loss"' "$@" | sed -n '$s/.*"loss": *\([0-9.]*\).*/\1/p'; }

for ((round = 1; round <= ${ROUNDS:-5}; round++)); do
  line="round $round:"
  for dtype in "${dtypes[@]}"; do
    for program in "${programs[@]}"; do
      run "$program" "$dtype" "$round"
      line+=" $program $dtype $(median "$out/$program-$dtype-$round.jsonl"),"
    done
  done
  echo "${line%,} tokens/s" >&2
done

ours=0 theirs=0
for dtype in "${dtypes[@]}"; do
  for program in "${programs[@]}"; do
    speed=$(median "$out/$program-$dtype"-*.jsonl)
    case $program in
      gpt-train*) ((speed > ours)) && ours=$speed ;;
      *) ((speed > theirs)) && theirs=$speed ;;
    esac || true
  done
done
echo "| program | dtype | tokens/s | to PyTorch's fastest | loss |"
echo "| --- | --- | ---: | ---: | ---: |"
for dtype in "${dtypes[@]}"; do
  for program in "${programs[@]}"; do
    speed=$(median "$out/$program-$dtype"-*.jsonl)
    echo "| $program | $dtype | $speed | $(ratio "$speed" "$theirs")x | $(last_loss "$out/$program-$dtype-1.jsonl") |"
  done
done
for dtype in "${dtypes[@]}"; do
  for program in "${programs[@]}"; do last_loss "$out/$program-$dtype-1.jsonl"; done
done | awk -v reference="$(last_loss "$out/pytorch-eager-float32-1.jsonl")" '
  { difference = $1 > reference ? $1 - reference : reference - $1; if (difference > largest) largest = difference }
  END { printf "losses within %.4f %%\n", 100 * largest / reference }'
echo "ratio $(ratio "$ours" "$theirs")x"
