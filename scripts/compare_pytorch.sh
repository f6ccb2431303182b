#!/usr/bin/env bash
# Speed against PyTorch: alternates gpt-train with scripts/pytorch_baseline.py, the same training run as a plain PyTorch program, for nanoGPT's
# model for a CPU and for GPT-2 124M (4 x 64 tokens a step on a CPU unless the flags say a size, 12 x 1,024 on a GPU). PyTorch runs eagerly and with torch.compile,
# gpt-train with its own operators and without (use_compile), and on a GPU in its other modes (compile_mode) beside PyTorch's
# reduce-overhead. All begin with the same weights and take the same batches, in float32, on a GPU with TF32 too, and there and on a CPU
# with instructions for it in bfloat16 (ours end to end, PyTorch by autocast). Prints one table with the median tokens/s (without start-up
# and warm-up), their ratio to PyTorch's fastest for that model, and the loss of the last batch; then for each model the largest
# difference of that loss from eager PyTorch's in float32, and the ratio of our fastest.
# usage: scripts/compare_pytorch.sh FILE [gpt-train flags...]     e.g. scripts/compare_pytorch.sh tinyshakespeare.txt --mlp swiglu
# MODELS ("nanogpt_cpu gpt2_124m") says which of them it measures, or others by the names of their files in configs; ROUNDS (5, for GPT-2 2)
# and STEPS (200, for GPT-2 18 on a CPU) how long, EVERY (20, for GPT-2 4 on a CPU) how many steps a figure covers.
set -euo pipefail
text=$(realpath "${1:?usage: scripts/compare_pytorch.sh FILE [gpt-train flags...]}"); shift
source "$(dirname "$0")/steps.sh"
train=build/bin/gpt-train python=$(python_with_torch)
[[ -x $train ]] || fail "$train is missing: run ./scripts/quickstart.sh first"
[[ -r $text ]] || fail "$text: cannot be read"
"$python" -c 'import os, sysconfig; exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
  fail "torch.compile needs Python's headers: install python3-dev first"
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT

quietly() { "$@" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }; }

# What is measured where: the device that gpt-train takes with these flags.
$train --data.text "$text" "$@" --print-config >"$out/config.yaml"
device=$(sed -n 's/^device: *\([a-z]*\).*/\1/p' "$out/config.yaml")
[[ $device != auto ]] || device=$("$python" -c 'import torch; print("cuda" if torch.cuda.is_available() else "cpu")')
dtypes=(float32) programs=(gpt-train gpt-train-uncompiled pytorch-eager pytorch-compiled)
if [[ $device == cuda ]]; then
  dtypes+=(tf32 bfloat16) programs+=(gpt-train-reduce-overhead gpt-train-max-autotune pytorch-reduce-overhead)
elif grep -qwE 'avx512_bf16|amx_bf16|bf16' /proc/cpuinfo; then
  dtypes+=(bfloat16)
else  # it is emulated, fourteen to twenty times slower than float32
  echo "This CPU has no bfloat16 instructions: only float32 is measured."
fi

# usage: configure MODEL FLAGS...   its configuration, and the weights that all begin with
configure() {
  local steps=${STEPS:-200} own=()
  every=${EVERY:-20} rounds=${ROUNDS:-5}
  if [[ $1 == gpt2* ]]; then
    own=(--gradient_accumulation_steps 1 --vocab_size 50257) rounds=${ROUNDS:-2}
    if [[ $device == cpu ]]; then
      steps=${STEPS:-18} every=${EVERY:-4}
      [[ $* == *_size* ]] || own+=(--block_size 64 --batch_size 4)
    fi
    [[ "${own[*]} $*" == *batch_size* ]] || own+=(--batch_size 12)
  fi
  $train --config "configs/$1.yaml" --data.text "$text" --tokenizer char --max_steps "$steps" --warmup_steps 10 --log_interval "$every" \
    --eval_interval 0 --checkpoint_interval 0 --sample_interval 0 --threads "$(nproc)" "${own[@]}" "${@:2}" \
    --print-config >"$out/config.yaml"
  # A step with a learning rate of 0 leaves them as they are.
  rm -rf "$out/initial"
  quietly $train --config "$out/config.yaml" --output_dir "$out/initial" --max_steps 1 --learning_rate 0 --min_lr 0 --warmup_steps 0 --use_amp false \
    --dtype float32
}

# usage: run PROGRAM DTYPE METRICS
run() {
  local flags=(--use_compile true)
  case $1 in
    gpt-train*)
      case ${1#gpt-train-} in
        uncompiled) flags=(--use_compile false) ;;
        reduce-overhead | max-autotune) flags+=(--compile_mode "${1#gpt-train-}") ;;
      esac
      [[ $2 == bfloat16 ]] && flags+=(--use_amp true) || flags+=(--use_amp false)
      quietly $train --config "$out/config.yaml" --output_dir "$out/run" --dtype "$2" "${flags[@]}"
      mv "$out/run/metrics.jsonl" "$3"
      rm -rf "$out/run"
      ;;
    pytorch-*)
      case $1 in
        pytorch-eager) flags=() ;;
        pytorch-compiled) flags=(--compile default) ;;
        pytorch-reduce-overhead) flags=(--compile reduce-overhead) ;;
      esac
      quietly "$python" -B scripts/pytorch_baseline.py --config "$out/config.yaml" --text "$text" --initial "$out/initial/ckpt.pt" --dtype "$2" \
        "${flags[@]}" --metrics "$3"
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

# usage: measure MODEL FLAGS...   its rows go to $out/rows, and what they say to $out/summary
measure() {
  local model=$1 round dtype program speed ours=0 theirs=0 line name
  configure "$@"
  for ((round = 1; round <= rounds; round++)); do
    line="$model, round $round:"
    for dtype in "${dtypes[@]}"; do
      for program in "${programs[@]}"; do
        name=$out/$model-$program-$dtype-$round.jsonl
        run "$program" "$dtype" "$name"
        line+=" $program $dtype $(median "$name"),"
      done
    done
    echo "${line%,} tokens/s" >&2
  done
  for dtype in "${dtypes[@]}"; do
    for program in "${programs[@]}"; do
      speed=$(median "$out/$model-$program-$dtype"-?*.jsonl)
      if [[ $program == gpt-train* ]]; then ours=$((speed > ours ? speed : ours)); else theirs=$((speed > theirs ? speed : theirs)); fi
      echo "$program $dtype $speed $(last_loss "$out/$model-$program-$dtype-1.jsonl")" >>"$out/$model"
    done
  done
  while read -r program dtype speed loss; do
    printf "| %s | %s | %s | %s | %sx | %.6f |\n" "$model" "$program" "$dtype" "$speed" "$(ratio "$speed" "$theirs")" "$loss" >>"$out/rows"
  done <"$out/$model"
  awk -v model="$model" -v reference="$(last_loss "$out/$model-pytorch-eager-float32-1.jsonl")" -v ratio="$(ratio "$ours" "$theirs")" '
    { difference = $4 > reference ? $4 - reference : reference - $4; if (difference > largest) largest = difference }
    END { printf "%s: losses within %.4f %%, ratio %sx\n", model, 100 * largest / reference, ratio }' "$out/$model" >>"$out/summary"
}

for model in ${MODELS:-nanogpt_cpu gpt2_124m}; do measure "$model" "$@"; done
echo "| model | program | dtype | tokens/s | to PyTorch's fastest | loss |"
echo "| --- | --- | --- | ---: | ---: | ---: |"
cat "$out/rows" "$out/summary"
