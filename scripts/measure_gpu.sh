#!/usr/bin/env bash
# Everything that a machine with a GPU can tell about this program, in commands of at most nine minutes each (what does not fit in is left
# out, and summary.txt says so). The first two say most of it, what matters most first:
#   all          of GPT-2 124M and the character model the speed in every compile_mode; the tests that run on a GPU; PyTorch's speed,
#                compiled; the time from the start to the first update; recorded steps of small batches; the losses of the ladder's start
#                beside those of the full set; where a step goes; a recorded run; operators one by one; the ladder of optimizations
#   sizes        the speed of GPT-2's sizes of 350M, 774M and 1558M beside PyTorch's, compiled block by block
# The others take longer over less:
#   tests        the tests that run on a GPU, and a whole run with its step recorded as CUDA graphs against the same run without
#   speed        the operators of both models one by one, and where their steps go; the time to the first update; small batches; losses; the
#                speed of both models in every compile_mode, and PyTorch's, eager and compiled
#   modes        every compile_mode of both models in turn, with their losses
#   ladder-char, ladder-gpt2   the ladder of one of them, with all its rungs, each taken away again
#   medium, large, xl          one of the larger sizes in every mode, and PyTorch's, eager and compiled
# Speeds are those of at least 100 updates after a warm-up; ladders and profiles take as many as fit into their time.
#
# It needs a build with CUDA (build/bin, build/lib), data/ and a Python with torch, whose libraries are used; nothing is installed. For a
# machine without network and compiler, `pack` puts what it needs besides that Python into FOLDER/gpt-train-gpu.tar.gz, of at most 64 MB:
# four programs without their symbols, build/lib, data, scripts, configs and tests.
#
# What each part printed is in FOLDER/PART.log, how it ended and what it found in FOLDER/summary.txt, to which each command adds, the card's
# clocks and power in FOLDER/clocks.csv, and all of FOLDER, after every part, in FOLDER.tar.gz. PARTS, a regular expression, leaves out all
# parts but those whose names it matches, which keep what an earlier call found. PATIENCE=N gives every part and every command N times its
# time, for a machine that has something else to do.
#
# usage: scripts/measure_gpu.sh FOLDER [DEVICE [COMMAND]]   DEVICE: cuda (default), or cpu to rehearse it with models that a CPU can bear
#                                                           (all comes to its end on two cores with PATIENCE=2);
#                                                           COMMAND: one of the above, all where it is left out
set -euo pipefail
source "$(dirname "$0")/steps.sh"

out=$(realpath -m "${1:?usage: scripts/measure_gpu.sh FOLDER [DEVICE [COMMAND]]}") device=${2:-cuda} command=${3:-all}
commands="all sizes tests speed modes ladder-char ladder-gpt2 medium large xl pack"
[[ $device =~ ^(cuda|cpu)$ ]] || fail "unknown device '$device': the second word is cuda or cpu"
[[ " $commands " == *" $command "* ]] || fail "unknown command '$command': the third word is one of $commands"
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

source scripts/measured_parts.sh

# What the card did while it was busy.
note_clocks() {
  busy() { awk -F ', ' -v column="$1" '$7 >= 90 { print $column }' "$out/clocks.csv" | sort -g; }
  middle() { busy "$1" | awk '{ value[NR] = $1 } END { printf "%.0f (lowest %.0f)", value[int((NR + 1) / 2)], value[1] }'; }
  note "the card in $(busy 1 | wc -l) readings while busy: median SM clock in MHz $(middle 2), power in W $(middle 3);" \
    "its limit of power held it back in $(busy 6 | grep -c '[4-7cdef]$' || true)"
}

finish() {
  [[ -z ${clocks:-} ]] || { kill "$clocks" 2>/dev/null || true; note_clocks; }
  rm -rf "$scratch"
  archive
}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/measure_gpu.XXXXXX")
trap finish EXIT
export TORCHINDUCTOR_CACHE_DIR=$scratch/inductor

# Both models' texts and runs, and how many updates of each are measured; a name such as gpt2_medium counts as gpt2. GPT-2's text is
# repeated, so that no epoch ends with a smaller batch while it is measured; one of the character model has 278 updates.
declare -A text=([char]=data/shakespeare.txt [gpt2]=$scratch/text.txt)
whole_char=(--config configs/shakespeare_char_gpu.yaml --data "${text[char]}" --device "$device")
whole_gpt2=("${gpt2_124m[@]}" --data "${text[gpt2]}" --device "$device")
if [[ $device == cuda ]]; then
  declare -A updates=([char]=270 [gpt2]=110) every=([char]=30 [gpt2]=10)
  copies=6 minutes=8 iterations=100 compared=200 short_blocks=(--block_size 256)
  tested=. rungs=bfloat16+flash+padding+adamw+compile+end_to_end+graph+autotune+resident
  batch() { echo "$1"; }
else
  whole_char+=(--n_layer 2 --n_embd 96 --n_head 3)
  whole_gpt2+=(--n_layer 2 --n_embd 64 --n_head 2 --block_size 64)
  declare -A updates=([char]=20 [gpt2]=20) every=([char]=5 [gpt2]=5)
  # After 100 updates another seed's losses differ by more than 1 %, after 30 they do not.
  copies=1 minutes=0.3 iterations=5 compared=100 short_blocks=()
  tested=$kernel_suites rungs=flash+padding+adamw+compile
  batch() { echo 4; }
fi
for ((i = 0; i < copies; ++i)); do cat data/shakespeare.txt; done >"${text[gpt2]}"
char=("${whole_char[@]}" "${alone[@]}" --dropout 0 --batch_size "$(batch 64)")
gpt2=("${whole_gpt2[@]}" --batch_size "$(batch "$(sequences)")")
# The ladder begins without flash attention and in float32, which needs five times the memory.
ladder_gpt2=("${whole_gpt2[@]}" --batch_size "$(batch 16)") ladder_char=("${char[@]}")

# usage: gpu_tests SECONDS   each suite within that time
gpu_tests() {
  [[ unit-tests =~ ${PARTS:-} ]] || return 0
  local limit=$1 began=$SECONDS names
  rm -rf "${out:?}/unit-tests"
  mkdir "$out/unit-tests"
  mapfile -t names < <(suites | grep -E "$tested")
  test_suite() { run_suite "$limit" "$out/unit-tests/${1//\//-}.log" "$1"; }
  in_parallel test_suite "${names[@]}"
  note "unit tests of ${#names[@]} suites in $((SECONDS - began)) s: $(count_tests "$out"/unit-tests/*.log)"
}

# The whole program around a recorded step: validation, samples, checkpoints, a stage with other batches, and a resume, against the
# same run without a recording. usage: recorded_run DETERMINISTIC
recorded_run() {
  local mode run
  for mode in default reduce-overhead; do
    run=run-$mode-deterministic-$1
    local flags=("${whole_char[@]}" --output_dir "$out/$run" --dropout 0.1 --batch_size 8 --compile_mode "$mode" --deterministic "$1" --log_interval 1
      --eval_interval 10 --eval_batches 4 --checkpoint_interval 10 --sample_interval 20 --warmup_steps 5 --lr_schedule constant
      --stages '[{from: 0, block_size: 128}, {from: 16, block_size: 256}]')
    part 60 "$run" build/bin/gpt-train "${flags[@]}" --max_steps 30
    part 60 "$run-resumed" build/bin/gpt-train "${flags[@]}" --max_steps 50
    rm -f "$out/$run"/*.pt
  done
  compare_losses "recorded and not, deterministic $1" 50 1 "$([[ $1 == true ]] && echo 0 || echo 1)" \
    "run-default-deterministic-$1" "run-reduce-overhead-deterministic-$1"
  [[ $device == cpu || ! -e $out/$run.log ]] || grep -q "Recording the step" "$out/$run.log" || note "$run: its step WAS NOT RECORDED"
}

# The ladder's start (without_rungs() in src/bench/rung.cpp) and all that its rungs turn on, with the same weights and batches, which are
# small so that float32 does not take long. usage: same_losses SECONDS
same_losses() {
  local flags=("${whole_gpt2[@]}" "${short_blocks[@]}" --batch_size "$(batch 8)" --max_steps $compared --warmup_steps 10 --log_interval 1)
  part "$1" losses-start build/bin/gpt-train "${flags[@]}" --output_dir "$out/losses-start" --use_compile false --use_amp false --dtype float32 \
    --fused_adamw false --attention math --vocab_multiple 1 --resident off
  part "$1" losses-full build/bin/gpt-train "${flags[@]}" --output_dir "$out/losses-full" --use_amp true --dtype bfloat16 --amp_mode end_to_end \
    --compile_mode max-autotune
  rm -f "$out"/losses-*/*.pt
  compare_losses "float32 from the start of the ladder and bfloat16 with everything, gpt2, means of 10" $compared 10 1 losses-start losses-full
}

# usage: with_times COMMAND...   writes before each line that it prints when that was, counted from its start
with_times() {
  local began=${EPOCHREALTIME/./} line
  set -o pipefail
  "$@" 2>&1 | while IFS= read -r line; do printf '%7d ms  %s\n' $(((${EPOCHREALTIME/./} - began) / 1000)) "$line"; done
}
export -f with_times

# From the start of the program to its first update, which it logs at once. usage: first_update SECONDS
first_update() {
  local took
  part "$1" first-update bash -c 'with_times "$@"' bash "${with_torch[@]}" build/bin/gpt-train "${gpt2[@]}" --max_steps 2 --warmup_steps 1 \
    --log_interval 1 --output_dir "$out/first-update"
  rm -f "$out"/first-update/*.pt
  took=$(sed -n 's/^ *\([0-9]*\) ms  step 1\/.*/\1/p' "$out/first-update.log" 2>/dev/null || true)
  [[ -z $took ]] || note "from the start of gpt-train to its first update, gpt2: $took ms (wanted: at most 5000)"
}

# A step of 8 sequences recorded, launched kernel by kernel, and with LibTorch's operators. usage: small_batch SECONDS
small_batch() {
  local name=char-batch-8
  configure $name "${whole_char[@]}" "${alone[@]}" --dropout 0 --batch_size 8
  ours $name "$1" reduce-overhead default eager
  ratio $name-reduce-overhead $name-default 3
  ratio $name-reduce-overhead $name-eager
}

# usage: configure_size SIZE   of GPT-2: medium, large or xl. With 32, 32 and 16 sequences gpt-diagnose estimates up to 67 GB here;
# PyTorch needs more.
configure_size() {
  local -A sequences=([medium]=16 [large]=8 [xl]=4)  # in a micro-batch
  ! has_free 135 false || sequences=([medium]=32 [large]=32 [xl]=16)
  configure "gpt2_$1" "${whole_gpt2[@]}" --preset "gpt2_$1" --batch_size "$(batch "${sequences[$1]}")"
}

# What matters most comes first: what the nine minutes cut off is at the end. PyTorch compiles while the tests run.
all() {
  local compiling
  configure gpt2 "${gpt2[@]}"
  configure char "${char[@]}"
  ours gpt2 40 default reduce-overhead max-autotune
  ours char 25 default reduce-overhead max-autotune
  compile_pytorch gpt2 140 default & compiling=$!
  compile_pytorch char 100 default reduce-overhead & compiling+=" $!"
  gpu_tests 130
  wait $compiling
  pytorch gpt2 40 blocks  # compiles in seconds, so that there is something to compare with where the whole fails to compile
  pytorch gpt2 70 default
  beside gpt2 1.15
  pytorch char 40 default reduce-overhead
  beside char
  first_update 20
  small_batch 20
  same_losses 45
  bench profile gpt2 25 --minutes 0.1
  recorded_run true
  bench ops gpt2 25 --minutes 0.1
  ladder "combo $rungs" gpt2 150 0.1
  bench ops char 20 --minutes 0.1
  pytorch gpt2 40 eager
  ladder "combo $rungs" char 90 0.1
}

sizes() {
  local size
  for size in medium large xl; do
    configure_size $size
    ours gpt2_$size 80 max-autotune
    # Compiling dozens of layers as a whole takes minutes, which may not be left; the same block for each of them, seconds.
    pytorch gpt2_$size 100 blocks
    beside gpt2_$size
  done
  for size in medium large xl; do ours gpt2_$size 60 reduce-overhead default; done
}

speed() {
  local model
  for model in char gpt2; do
    bench ops $model 40 --minutes 0.1
    bench profile $model 40 --minutes 0.1
  done
  first_update 60
  same_losses 60
  small_batch 40
  configure char "${char[@]}"
  configure gpt2 "${gpt2[@]}"
  ours char 30 default reduce-overhead max-autotune
  ours gpt2 60 default reduce-overhead max-autotune
  pytorch gpt2 60 eager
  pytorch gpt2 240 default
  beside gpt2 1.15
  pytorch char 30 eager
  pytorch char 180 default reduce-overhead
  beside char
}

# usage: one_size SIZE
one_size() {
  configure_size "$1"
  ours "gpt2_$1" 60 default reduce-overhead max-autotune
  pytorch "gpt2_$1" 70 eager
  pytorch "gpt2_$1" 260 blocks default
  beside "gpt2_$1"
}

note "=== $command on $device, $(date -u +%Y-%m-%dT%H:%MZ)"
[[ $device == cuda ]] || note "This is a rehearsal: its speeds and ratios say nothing about a GPU, and little about this CPU."
part 60 machine build/bin/gpt-diagnose --json
if [[ $device == cuda ]]; then
  nvidia-smi --query-gpu=timestamp,clocks.sm,power.draw,temperature.gpu,memory.used,clocks_event_reasons.active,utilization.gpu \
    --format=csv,noheader,nounits -lms 500 >"$out/clocks.csv" 2>&1 &
  clocks=$!
fi
case $command in
  all | sizes | speed) $command ;;
  tests)
    gpu_tests 300
    recorded_run true
    recorded_run false
    ;;
  modes)
    bench modes char 200 --epochs 3 --iterations $iterations
    bench modes gpt2 320 --epochs 3 --iterations $iterations
    ;;
  ladder-*) ladder ladder "${command#ladder-}" 520 $minutes ;;
  medium | large | xl) one_size "$command" ;;
esac
say "Results: $out/summary.txt; all of them in one file: $out.tar.gz"
