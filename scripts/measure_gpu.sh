#!/usr/bin/env bash
# Everything that a machine with a GPU can tell about this program, in three commands of at most nine minutes each (what does not fit
# in is left out, and summary.txt says so). The first: every test that runs on a GPU, the speed of the character model and of GPT-2
# 124M, as they are configured and with the step recorded as CUDA graphs, and PyTorch's beside it, eager and compiled; their operators
# one by one, and where their steps go. The second, with `ladder`: the ladders of optimizations of both. The third, with `large`: the
# speed of GPT-2's sizes of 350M, 774M and 1558M. It needs a build with CUDA (build/bin, build/lib), data/ and a Python with torch,
# whose libraries are used; nothing is installed. What each part printed is in FOLDER, and a line in FOLDER/summary.txt says how it ended.
#
# usage: scripts/measure_gpu.sh FOLDER [DEVICE [ladder|large]]   DEVICE: cuda (default), or cpu to rehearse it with models that a CPU can bear
set -euo pipefail
source "$(dirname "$0")/steps.sh"

out=$(realpath -m "${1:?usage: scripts/measure_gpu.sh FOLDER [DEVICE [ladder|large]]}") device=${2:-cuda} what=${3:-speed}
[[ $what =~ ^(speed|ladder|large)$ ]] || fail "unknown argument $what: the third is ladder, large, or left out"
python=python3
[[ ! -x .deps/venv/bin/python ]] || python=.deps/venv/bin/python
[[ -x build/bin/gpt-bench ]] || fail "build/bin/gpt-bench is missing: run ./scripts/setup.sh --cuda first"
[[ -r data/shakespeare.txt ]] || fail "data/shakespeare.txt is missing: run ./scripts/get_data.sh first"
mkdir -p "$out"
runs=$(mktemp -d "${TMPDIR:-/tmp}/measure_gpu.XXXXXX"); trap 'rm -rf "$runs"' EXIT
: >"$out/summary.txt"

# The libraries of that torch, for programs that were built elsewhere and look for them there.
torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
libraries=$PWD/build/lib/gpt-train:$torch/lib:$torch/../nvidia/cu13/lib:$torch/../nvidia/cudnn/lib
# GPT_SOURCE_DIR tells tests that were built in another folder where their data is. PyTorch gets neither: it has its own OpenMP.
with_torch=(env "LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "GPT_SOURCE_DIR=$PWD")

# usage: part SECONDS NAME COMMAND...   for at most so long, and nine minutes in all, with its output in NAME.log; a part that fails
# or hangs does not keep the others from running
part() {
  local began=$SECONDS code=0 left=$((530 - SECONDS)) wrapper=()
  if ((left < 5)); then printf '%-22s left out: the nine minutes are over\n' "$2" | tee -a "$out/summary.txt"; return; fi
  [[ $3 != build/bin/* ]] || wrapper=("${with_torch[@]}")
  timeout --kill-after=10 $(($1 < left ? $1 : left)) "${wrapper[@]}" "${@:3}" >"$out/$2.log" 2>&1 || code=$?
  printf '%-22s exit %3d after %3d s\n' "$2" "$code" $((SECONDS - began)) | tee -a "$out/summary.txt"
}

text=(--data data/shakespeare.txt --device "$device" --eval_interval 0 --checkpoint_interval 0 --sample_interval 0)
char=(--config configs/shakespeare_char_gpu.yaml "${text[@]}" --dropout 0)
gpt2=(--config configs/gpt2_124m.yaml "${text[@]}" --tokenizer gpt2 --gradient_accumulation_steps 1)
updates=110 every=10 minutes=4 batch=32
if [[ $device == cpu ]]; then
  char+=(--n_layer 2 --n_embd 96 --n_head 3 --batch_size 4)
  gpt2+=(--n_layer 2 --n_embd 64 --n_head 2 --block_size 64)
  updates=20 every=5 minutes=0.3 batch=4
fi

# usage: speed NAME SECONDS FLAGS...   for at most so many seconds each (PyTorch's compiler gets twice as many): this program and PyTorch
# with the same configuration, one after the other. Large models are measured by gpt-bench, which writes no checkpoint: one takes 19 GB.
speed() {
  local name=$1 config=$out/$1.yaml limit=$2 own=(build/bin/gpt-train --output_dir "$runs/$1")
  [[ $what != large ]] || own=(build/bin/gpt-bench measure --warm-up $every --updates $((updates - every)))
  shift 2
  if ! "${with_torch[@]}" build/bin/gpt-train "$@" --max_steps $updates --warmup_steps 10 --log_interval $every --print-config >"$config"; then
    printf '%-22s left out: gpt-train refused its configuration\n' "$name" | tee -a "$out/summary.txt"
    return
  fi
  part "$limit" "$name-gpt-train" "${own[@]}" --config "$config"
  rm -rf "${runs:?}/$name"
  part "$limit" "$name-graphs" "${own[@]}" --config "$config" --compile_mode reduce-overhead
  rm -rf "${runs:?}/$name"
  grep "Failed to record" "$out/$name-graphs.log" | tee -a "$out/summary.txt" || true
  part "$limit" "$name-pytorch" "$python" -B scripts/pytorch_baseline.py --config "$config" --text data/shakespeare.txt --dtype bfloat16 \
    --metrics "$out/$name-pytorch.jsonl"
  part $((2 * limit)) "$name-pytorch-compiled" "$python" -B scripts/pytorch_baseline.py --config "$config" --text data/shakespeare.txt --dtype bfloat16 \
    --compile --metrics "$out/$name-pytorch-compiled.jsonl"
}

[[ $device == cpu ]] || export GPT_REQUIRE_CUDA=1
[[ $what == large ]] || gpt2+=(--batch_size $batch)
part 60 machine build/bin/gpt-diagnose --json
case $what in
  speed)
    part 180 tests build/bin/gpt_tests --gtest_filter="*$device*"
    speed char 25 "${char[@]}"
    speed gpt2 40 "${gpt2[@]}"
    for model in char gpt2; do
      declare -n flags=$model
      part 15 "ops-$model" build/bin/gpt-bench ops "${flags[@]}" --minutes 0.1 --results "$out/ops-$model"
      part 15 "profile-$model" build/bin/gpt-bench profile "${flags[@]}" --minutes 0.1 --results "$out/profile-$model"
    done
    ;;
  ladder)
    part 250 ladder-char build/bin/gpt-bench ladder "${char[@]}" --minutes $minutes --results "$out/ladder-char"
    part 250 ladder-gpt2 build/bin/gpt-bench ladder "${gpt2[@]}" --minutes $minutes --results "$out/ladder-gpt2"
    ;;
  large)
    updates=40
    for size in medium:16:24 large:8:32 xl:4:50; do  # sequences in a micro-batch, and seconds
      IFS=: read -r size sequences limit <<<"$size"
      [[ $device == cpu ]] || batch=$sequences
      speed "gpt2_$size" "$limit" "${gpt2[@]}" --preset "gpt2_$size" --batch_size "$batch"
    done
    ;;
esac
say "Results: $out"
