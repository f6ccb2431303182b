#!/usr/bin/env bash
# Everything that a machine with a GPU can tell about this program, in commands of at most nine minutes each (what does not fit in is left
# out, and summary.txt says so):
#   tests        the tests that run on a GPU, and a whole run with its step recorded as CUDA graphs against the same run without
#   speed        the operators of the character model and of GPT-2 124M one by one, and where their steps go; the time from the start to the
#                first update; recorded steps of small batches; the speed of both models as configured, recorded, and with measured
#                products, and PyTorch's, eager and compiled
#   modes        every compile_mode of both models in turn, with their losses
#   ladder-char, ladder-gpt2   the ladder of optimizations of one of them
#   medium, large, xl          the speed of GPT-2's sizes of 350M, 774M and 1558M, and PyTorch's
# Every speed is that of at least 100 updates after a warm-up; only ladders and profiles take as many as fit into their time.
#
# It needs a build with CUDA (build/bin, build/lib), data/ and a Python with torch, whose libraries are used; nothing is installed. For a
# machine without network and compiler, `pack` puts what it needs besides that Python into FOLDER/gpt-train-gpu.tar.gz, of at most 64 MB:
# four programs without their symbols, build/lib, data, scripts, configs and tests.
#
# What each part printed is in FOLDER/PART.log, how it ended and what it found in FOLDER/summary.txt, to which each command adds, and
# all of FOLDER in FOLDER.tar.gz.
#
# usage: scripts/measure_gpu.sh FOLDER [DEVICE [COMMAND]]   DEVICE: cuda (default), or cpu to rehearse it with models that a CPU can bear;
#                                                           COMMAND: one of the above, speed where it is left out
set -euo pipefail
source "$(dirname "$0")/steps.sh"

out=$(realpath -m "${1:?usage: scripts/measure_gpu.sh FOLDER [DEVICE [COMMAND]]}") device=${2:-cuda} command=${3:-speed}
[[ $device =~ ^(cuda|cpu)$ ]] || fail "unknown device $device: the second word is cuda or cpu"
[[ $command =~ ^(tests|speed|modes|ladder-char|ladder-gpt2|medium|large|xl|pack)$ ]] ||
  fail "unknown command $command: the third word is tests, speed, modes, ladder-char, ladder-gpt2, medium, large, xl or pack"
python=$(python_with_torch)
[[ -x build/bin/gpt-bench ]] || fail "build/bin/gpt-bench is missing: run ./scripts/setup.sh --cuda first"
[[ -r data/shakespeare.txt ]] || fail "data/shakespeare.txt is missing: run ./scripts/get_data.sh first"
mkdir -p "$out"

pack() {
  local root program size
  root=$(mktemp -d "${TMPDIR:-/tmp}/measure_gpu.XXXXXX")
  mkdir -p "$root/build/bin"
  for program in gpt-bench gpt-train gpt-diagnose gpt_tests; do strip -o "$root/build/bin/$program" build/bin/$program; done
  cp -r build/lib "$root/build"
  tar czf "$out/gpt-train-gpu.tar.gz" --exclude=__pycache__ -C "$root" build -C "$PWD" data/shakespeare.txt data/gpt2 scripts configs tests
  rm -rf "$root"
  size=$(stat -c %s "$out/gpt-train-gpu.tar.gz")
  ((size <= 64000000)) || fail "$out/gpt-train-gpu.tar.gz has $size bytes, more than 64 MB: see what has grown with tar tvzf"
  say "$((size / 1000000)) MB: $out/gpt-train-gpu.tar.gz"
}
[[ $command != pack ]] || { pack; exit; }

note() { printf '%s\n' "$*" | tee -a "$out/summary.txt"; }

# The libraries of that torch, for programs that were built elsewhere and look for them there.
torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
libraries=$PWD/build/lib/gpt-train:$torch/lib:$torch/../nvidia/cu13/lib:$torch/../nvidia/cudnn/lib
# GPT_SOURCE_DIR tells tests that were built in another folder where their data is. PyTorch gets neither: it has its own OpenMP.
with_torch=(env "LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "GPT_SOURCE_DIR=$PWD")

# usage: rate NAME   the median tokens/s of a part, without its first interval; nothing where it measured none
rate() {
  cat "$out/$1.jsonl" "$out/$1/metrics.jsonl" 2>/dev/null | sed -n 's/.*"tokens_per_second": *\([0-9.e+]*\).*/\1/p' |
    awk 'NR == 1 { first = $1; next } { print } END { if (NR == 1) print first }' | sort -g |
    awk '{ rate[NR] = $1 } END { if (NR) printf "%.0f\n", (rate[int((NR + 1) / 2)] + rate[int(NR / 2) + 1]) / 2 }' || true
}

# usage: part SECONDS NAME COMMAND...   for at most so long, and nine minutes in all, with its output in NAME.log; a part that fails
# or hangs does not keep the others from running
part() {
  local began=$SECONDS code=0 left=$((530 - SECONDS)) wrapper=() line found
  printf -v line '%-44s' "$2"
  rm -rf "${out:?}/$2" "$out/$2.jsonl" "$out/$2.log"
  if ((left < 5)); then note "$line left out: the nine minutes are over"; return; fi
  [[ $3 != build/bin/* ]] || wrapper=("${with_torch[@]}")
  timeout --kill-after=10 $(($1 < left ? $1 : left)) "${wrapper[@]}" "${@:3}" >"$out/$2.log" 2>&1 || code=$?
  case $code in
    0) line+=" done in $((SECONDS - began)) s" ;;
    124 | 137) line+=" STOPPED after $((SECONDS - began)) s, all that it had" ;;
    *) line+=" FAILED with exit status $code: $(tail -n 1 "$out/$2.log")" ;;
  esac
  found=$(rate "$2")
  note "$line${found:+, $found tokens/s}"
  grep -hE "Failed to|stays LibTorch's|cannot be recorded" "$out/$2.log" | sort -u | tee -a "$out/summary.txt" || true
}

text=(--data data/shakespeare.txt --device "$device") alone=(--eval_interval 0 --checkpoint_interval 0 --sample_interval 0)
char=(--config configs/shakespeare_char_gpu.yaml "${text[@]}")
gpt2=(--config configs/gpt2_124m.yaml "${text[@]}" "${alone[@]}" --tokenizer gpt2 --gradient_accumulation_steps 1)
if [[ $device == cuda ]]; then
  export GPT_REQUIRE_CUDA=1
  # 270 updates of the character model, because an epoch has 278 and ends with a smaller batch, for which PyTorch would compile again.
  char_updates=270 char_every=30 updates=110 every=10 minutes=8 turns=(--epochs 3 --iterations 100)
  batch() { echo "$1"; }
else
  char+=(--n_layer 2 --n_embd 96 --n_head 3)
  gpt2+=(--n_layer 2 --n_embd 64 --n_head 2 --block_size 64)
  char_updates=20 char_every=5 updates=20 every=5 minutes=0.3 turns=(--epochs 1 --iterations 5)
  batch() { echo 4; }
fi
whole_char=("${char[@]}") small_char=("${char[@]}" "${alone[@]}" --dropout 0 --batch_size 8)
char+=("${alone[@]}" --dropout 0 --batch_size "$(batch 64)")

# usage: bench VERB MODEL SECONDS FLAGS...
bench() {
  local name=$1-$2
  local -n flags=$2
  part "$3" "$name" build/bin/gpt-bench "$1" "${flags[@]}" "${@:4}" --results "$out/$name"
  [[ $1 == ops ]] || grep -sh '^|' "$out/$name"/*.md | tee -a "$out/summary.txt" || true  # its tables
}

# usage: configure NAME UPDATES EVERY FLAGS...   writes NAME.yaml for both programs
configure() {
  "${with_torch[@]}" build/bin/gpt-train "${@:4}" --max_steps "$2" --warmup_steps 10 --log_interval "$3" --print-config >"$out/$1.yaml" ||
    note "$1: gpt-train refused its configuration"
}

# usage: ours NAME SECONDS COMMAND...   this program with NAME.yaml, for at most so many seconds each
ours() {
  local name=$1 mode folder where
  for mode in default reduce-overhead max-autotune; do
    folder=$name-$mode
    # gpt-bench writes no checkpoint: one of the largest model takes 19 GB.
    if [[ $3 == build/bin/gpt-train ]]; then where=(--output_dir "$out/$folder"); else where=(--result "$out/$folder.jsonl"); fi
    part "$2" "$folder" "${@:3}" --config "$out/$name.yaml" --compile_mode $mode "${where[@]}"
    rm -f "$out/$folder"/*.pt
  done
}

# usage: pytorch NAME SECONDS [MODE...]   PyTorch with NAME.yaml, eager and with each mode of compilation, which gets as long again and two minutes
pytorch() {
  local name=$1 mode baseline=("$python" -B scripts/pytorch_baseline.py --config "$out/$1.yaml" --text data/shakespeare.txt --dtype bfloat16)
  part "$2" "$name-pytorch" "${baseline[@]}" --metrics "$out/$name-pytorch.jsonl"
  for mode in "${@:3}"; do
    part $((2 * $2 + 120)) "$name-pytorch-$mode" "${baseline[@]}" --compile "$mode" --metrics "$out/$name-pytorch-$mode.jsonl"
  done
}

# The whole program around a recorded step: validation, samples, checkpoints, a stage with other batches, and a resume, against the
# same run without a recording. usage: recorded_run DETERMINISTIC
recorded_run() {
  local mode run names=()
  for mode in default reduce-overhead; do
    run=run-$mode-deterministic-$1
    local flags=("${whole_char[@]}" --output_dir "$out/$run" --dropout 0.1 --batch_size 8 --compile_mode "$mode" --deterministic "$1" --log_interval 1
      --eval_interval 10 --eval_batches 4 --checkpoint_interval 10 --sample_interval 20 --warmup_steps 5 --lr_schedule constant
      --stages '[{from: 0, block_size: 128}, {from: 16, block_size: 256}]')
    part 60 "$run" build/bin/gpt-train "${flags[@]}" --max_steps 30
    part 60 "$run-resumed" build/bin/gpt-train "${flags[@]}" --max_steps 50
    rm -f "$out/$run"/*.pt
    names+=("$out/$run/metrics.jsonl")
  done
  paste <(losses "${names[0]}") <(losses "${names[1]}") | awk -v deterministic="$1" -v most="$([[ $1 == true ]] && echo 0 || echo 1)" '
    NF == 2 { difference = 100 * ($1 > $2 ? $1 - $2 : $2 - $1) / $1; if (difference > largest) largest = difference; ++count }
    END { printf "recorded and not, deterministic %s: the losses of %d updates (wanted: 50) differ by at most %.3g %% (wanted: %d): %s\n",
          deterministic, count, largest, most, count == 50 && largest <= most ? "good" : "WRONG" }' | tee -a "$out/summary.txt"
  [[ $device == cpu ]] || grep -q "Recording the step" "$out/$run.log" || note "$run: its step WAS NOT RECORDED"
}
losses() { sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' "$1"; }

# From the start of the program to its first update, which it logs at once.
first_update() {
  local began=$EPOCHREALTIME line passed=
  while read -r line; do
    [[ -n $passed || ! $line =~ ^step\ +1/ ]] || passed=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }')
  done < <(timeout 60 "${with_torch[@]}" build/bin/gpt-train "${gpt2[@]}" --max_steps 2 --warmup_steps 1 --log_interval 1 --output_dir "$out/start" 2>&1 |
    tee "$out/start.log")
  rm -rf "${out:?}/start"
  note "from the start of gpt-train to its first update, gpt2: ${passed:-see start.log, more than 60} s (wanted: at most 5 s)"
}

# A step of a small batch launched kernel by kernel, and recorded.
small_batch() {
  local mode
  for mode in default reduce-overhead; do
    part 40 "char-batch-8-$mode" build/bin/gpt-bench measure "${small_char[@]}" --compile_mode $mode --warm-up $char_every \
      --updates $((char_updates - char_every)) --result "$out/char-batch-8-$mode.jsonl"
  done
  awk -v recorded="$(rate char-batch-8-reduce-overhead)" -v plain="$(rate char-batch-8-default)" 'BEGIN {
    if (plain > 0) printf "a recorded step of 8 sequences is %.2f times as fast as the same step unrecorded (wanted: at least 3)\n", recorded / plain
  }' | tee -a "$out/summary.txt"
}

# usage: size NAME SEQUENCES   of GPT-2; in a micro-batch
size() {
  local name=gpt2_$1
  configure "$name" $updates $every "${gpt2[@]}" --preset "$name" --batch_size "$(batch "$2")"
  ours "$name" 60 build/bin/gpt-bench measure --warm-up $every --updates $((updates - every))
  # Compiling dozens of layers as a whole takes minutes, which may not be left; the same block for each of them, seconds.
  pytorch "$name" 70 blocks default
}

note "=== $command on $device, $(date -u +%Y-%m-%dT%H:%MZ)"
part 60 machine build/bin/gpt-diagnose --json
[[ $command == medium || $command == large || $command == xl ]] || gpt2+=(--batch_size "$(batch 32)")
case $command in
  tests)
    part 300 unit-tests build/bin/gpt_tests --gtest_filter="*$device*"
    recorded_run true
    recorded_run false
    ;;
  speed)
    for model in char gpt2; do
      bench ops $model 40 --minutes 0.1
      bench profile $model 40 --minutes 0.1
    done
    first_update
    small_batch
    configure char $char_updates $char_every "${char[@]}"
    configure gpt2 $updates $every "${gpt2[@]}"
    ours char 30 build/bin/gpt-train
    ours gpt2 60 build/bin/gpt-train
    pytorch gpt2 60 default
    pytorch char 30 default reduce-overhead
    ;;
  modes)
    bench modes char 200 "${turns[@]}"
    bench modes gpt2 320 "${turns[@]}"
    ;;
  ladder-*) bench ladder "${command#ladder-}" 520 --minutes $minutes ;;
  medium) size medium 16 ;;
  large) size large 8 ;;
  xl) size xl 4 ;;
esac
tar czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")"
say "Results: $out/summary.txt; all of them in one file: $out.tar.gz"
