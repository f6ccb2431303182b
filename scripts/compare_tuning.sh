#!/usr/bin/env bash
# Compares learning from conversations with TRL's SFTTrainer on a CPU: SmolLM2 is tuned on conversations that are cut out of a text.
#
# usage: scripts/compare_tuning.sh losses|speed [FOLDER] [gpt-train flags...]     FOLDER: what scripts/smollm2.sh made (smollm2)
#   losses   the loss of each of STEPS (200) updates in float32 at RATE (1e-4) on the same rows of LENGTH (128) positions, two of them to an update, one after
#            the other; with LORA_RANK also how far the adapters are apart in the end, beside two runs of peft with one thread and two
#   speed    ROUNDS (3) rounds of UPDATES (6) updates in turn, of rows of 512: gpt-train with packing and without, and with rows as long as the
#            longest of eight conversations; TRL with packing in MODES ("eager compiled bfloat16"), and with its defaults. Prints how full the
#            rows are, and the medians. ROWS (2): packed rows of an update. With MODES packed rows alone are measured.
# LORA_RANK=16: adapters of this rank are trained, with peft; both begin with the adapter that gpt-train draws.
# PYTHON: one that has the packages below; without it they are installed into .deps/compare_tuning (7 GB with what PyTorch brings for GPUs).
# RESULTS (build/tuning) where rows, runs and figures are kept.
set -euo pipefail
part=${1:-}
[[ $part == losses || $part == speed ]] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
model=$(realpath "${2:-smollm2}"); shift; shift || true
source "$(dirname "$0")/steps.sh"

train=build/bin/gpt-train text=data/shakespeare.txt
[[ -x $train && -r $text ]] || fail "$train or $text is missing: run ./scripts/quickstart.sh first"
[[ -r $model/model.safetensors ]] || fail "$model is no model: make one with scripts/smollm2.sh"
python=${PYTHON:-.deps/compare_tuning/bin/python}
results=$(realpath -m "${RESULTS:-build/tuning}")
mkdir -p "$results"
adapter=()

install_packages() {
  python3 -m venv .deps/compare_tuning
  "$python" -m pip install --quiet trl==1.16.0 peft==0.21.2 transformers==5.24.0 torch==2.15.0 datasets==5.2.0 accelerate==1.15.0
}
[[ -x $python ]] || report "Packages in .deps/compare_tuning" install_packages

export HF_HUB_OFFLINE=1 HF_HOME=$results/cache TOKENIZERS_PARALLELISM=false HF_DATASETS_DISABLE_PROGRESS_BARS=1

# usage: theirs PART ARGUMENTS...
theirs() { "$python" -B scripts/compare_tuning.py "$@" "${adapter[@]}" --model "$model" --chats "$results/chats.jsonl" --results "$results" \
  2>"$results/trl.log" ||
  fail "$(tail -n 1 "$results/trl.log")"; }

# usage: tune FLAGS...   a run of gpt-train in $results/run
tune() {
  rm -rf "$results/run"
  "$train" --init_from "$model" --data "$results/chats.jsonl" --cache_dir "$results/cache" --output_dir "$results/run" --device cpu \
    --lora_rank "${LORA_RANK:-0}" --validation_fraction 0 --eval_interval 0 --sample_interval 0 --checkpoint_interval 0 --log_interval 1 "$@" 2>"$results/gpt-train.log" ||
    fail "$(tail -n 1 "$results/gpt-train.log")"
}

# usage: conversations COUNT WORDS
conversations() { "$python" -B scripts/compare_tuning.py write --text "$text" --chats "$results/chats.jsonl" --count "$1" --words "$2"; }

# The adapter that a run begins with, for peft.
draw_adapter() {
  adapter=()
  [[ ${LORA_RANK:-0} != 0 ]] || return 0
  tune --sequence_length 128 --max_steps 1 --warmup_steps 0 --learning_rate 0 --min_lr 0
  build/bin/gpt-export --checkpoint "$results/run" --adapter --output "$results/adapter" 2>"$results/gpt-export.log" ||
    fail "$(tail -n 1 "$results/gpt-export.log")"
  adapter=(--adapter "$results/adapter")
}

compare_losses() {
  local steps=${STEPS:-200} rate=${RATE:-1e-4} length=${LENGTH:-128} threads
  conversations 1000 25
  draw_adapter
  tune --sequence_length "$length" --batch_size 1 --gradient_accumulation_steps 2 --max_steps "$steps" --warmup_steps 0 --learning_rate "$rate" --min_lr 0 \
    --beta2 0.99 --dtype float32 "$@"
  for threads in $([[ ${LORA_RANK:-0} == 0 ]] && echo 2 || echo 1 2); do
    theirs losses --rate "$rate" --length "$length" --steps "$steps" --threads "$threads" --metrics "$results/run/metrics.jsonl"
  done
  [[ ${LORA_RANK:-0} != 0 ]] || return 0
  build/bin/gpt-export --checkpoint "$results/run" --adapter --output "$results/ours" 2>"$results/gpt-export.log" ||
    fail "$(tail -n 1 "$results/gpt-export.log")"
  theirs adapters
}

# usage: measure NAME ROUND ROWS FLAGS...
measure() {
  local updates=${UPDATES:-6} rows=$3
  tune --batch_size "$rows" --max_steps "$updates" --warmup_steps 1 "${@:4}"
  theirs ours --mode "$1" --round "$2" --rows "$rows" --warm 2 --metrics "$results/run/metrics.jsonl"
}

compare_speed() {
  local round mode padded mean median rows=${ROWS:-2}
  conversations 600 80
  draw_adapter
  rm -f "$results/speed.jsonl"
  read -r padded mean median < <(theirs padding --length 512)
  say "Conversations have $mean tokens in the mean and $median in the median, the longest of eight $padded."
  for ((round = 1; round <= ${ROUNDS:-3}; round++)); do
    measure packed "$round" "$rows" --sequence_length 512 "$@"
    ((round > 1)) || grep -o 'Conversations: .*' "$results/run/train.log"
    for mode in ${MODES:-eager compiled bfloat16}; do theirs speed --mode "$mode" --round "$round" --rows "$rows" --steps "${UPDATES:-6}" --warm 2; done
    [[ ! ${MODES:-} ]] || continue
    for mode in defaults defaults-float32; do theirs speed --mode "$mode" --round "$round" --steps 3; done
    measure "padded to 512" "$round" 2 --sequence_length 512 --packing false "$@"
    measure "padded to $padded" "$round" 2 --sequence_length "$padded" --packing false "$@"
  done
  theirs table
}

"compare_$part" "$@"
