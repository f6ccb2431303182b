# Sourced by the scripts that measure on a GPU, which set $out, their folder, and $device: how programs find torch's libraries, how a part
# of a measurement runs for a limited time, what is read out of what it left, and the parts that are tests, gpt-bench and PyTorch.

python=$(python_with_torch)
# The libraries of that torch, for programs that were built elsewhere and look for them there.
torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
libraries=$PWD/build/lib/gpt-train:$torch/lib:$torch/../nvidia/cu13/lib:$torch/../nvidia/cudnn/lib
# GPT_SOURCE_DIR tells tests that were built in another folder where their data is. PyTorch gets neither: it has its own OpenMP.
with_torch=(env "LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "GPT_SOURCE_DIR=$PWD")
[[ $device != cuda ]] || export GPT_REQUIRE_CUDA=1
PATIENCE=${PATIENCE:-1}

# A run that only trains, and the one of GPT-2 124M that is measured.
alone=(--eval_interval 0 --checkpoint_interval 0 --sample_interval 0)
gpt2_124m=(--config configs/gpt2_124m.yaml "${alone[@]}" --tokenizer gpt2 --gradient_accumulation_steps 1)
# usage: has_free GB DEFAULT   whether the card has so much free memory; DEFAULT (true or false) where nvidia-smi does not tell
has_free() {
  local free
  free=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits 2>/dev/null | head -n 1) || true  # in MiB
  if [[ $free =~ ^[0-9]+$ ]]; then ((free * 1048576 >= $1 * 1000000000)); else $2; fi
}

# Its sequences of 1,024 tokens: 64 need 22 GB here, and more in PyTorch.
sequences() { if has_free 30 true; then echo 64; else echo 32; fi; }

# The suites of gpt_tests with kernels of our own.
kernel_suites='AdamW|Muon|AddNorm|RowSums|Verdict|Activation|Classifier|Embedding|FlatNorm|Heads|Spike|TokenGather'

# usage: cuda_tool NAME   where it is: on the PATH or in CUDA's folder
cuda_tool() {
  command -v "$1" || compgen -G "/usr/local/cuda*/bin/$1" | tail -n 1 | grep . || fail "$1 is missing: it comes with the CUDA toolkit"
}

# usage: note LINE   in the summary, and with it in the archive of the folder
note() {
  printf '%s\n' "$*" | tee -a "$out/summary.txt"
  archive
}

# What is just being written may be cut off in it.
archive() {
  tar czf "$out.$BASHPID" -C "$(dirname "$out")" "$(basename "$out")" 2>/dev/null || true
  mv "$out.$BASHPID" "$out.tar.gz"
}

# usage: within SECONDS COMMAND...   for at most so long, and nine minutes in all (times PATIENCE)
within() {
  local limit=$(($1 * PATIENCE)) left=$((530 * PATIENCE - SECONDS))
  timeout --kill-after=10 $((left < 1 ? 1 : limit < left ? limit : left)) "${@:2}"
}

# usage: part SECONDS NAME COMMAND...   within that time, with its output in NAME.log; a part that fails or hangs does not keep the others
# from running
part() {
  local began=$SECONDS code=0 wrapper=() line found
  [[ $2 =~ ${PARTS:-} ]] || return 0
  printf -v line '%-44s' "$2"
  rm -rf "${out:?}/$2" "$out/$2.jsonl" "$out/$2.log"
  if ((530 * PATIENCE - SECONDS < 5)); then note "$line left out: the nine minutes are over"; return; fi
  [[ $3 != build/bin/* ]] || wrapper=("${with_torch[@]}")
  within "$1" "${wrapper[@]}" "${@:3}" >"$out/$2.log" 2>&1 || code=$?
  case $code in
    0) line+=" done in $((SECONDS - began)) s" ;;
    124 | 137) line+=" STOPPED after $((SECONDS - began)) s, all that it had" ;;
    *) line+=" FAILED with exit status $code: $(tail -n 1 "$out/$2.log")" ;;
  esac
  found=$(rate "$2")
  note "$line${found:+, $found tokens/s}"
  grep -hE "Failed to|stays LibTorch's" "$out/$2.log" | sort -u | tee -a "$out/summary.txt" || true
}

# The suites of gpt_tests that have tests of the device, those with kernels first.
suites() {
  "${with_torch[@]}" build/bin/gpt_tests --gtest_filter="*$device*" --gtest_list_tests | sed -nE 's/^([A-Za-z0-9_/]+)\.( .*)?$/\1/p' |
    awk -v first="$kernel_suites" '$0 ~ first { print; next } { rest = rest $0 "\n" } END { printf "%s", rest }'
}

# usage: in_parallel FUNCTION WORD...   the function with each word, at once on three quarters of the cores
in_parallel() (
  for word in "${@:2}"; do
    while (($(jobs -rp | wc -l) >= ($(nproc) * 3 + 3) / 4)); do wait -n || true; done
    "$1" "$word" </dev/null &
  done
  wait
)

# usage: run_suite SECONDS LOG SUITE [COMMAND...]   the suite's tests of the device, under COMMAND, in a process of its own, so that a suite
# that crashes or hangs costs only itself; its exit status is the last line of the log
run_suite() {
  local code=0
  within "$1" "${with_torch[@]}" "${@:4}" build/bin/gpt_tests --gtest_filter="$3.*$device*" >"$2" 2>&1 || code=$?
  printf '\nexit status %d\n' $code >>"$2"
}

# usage: count_tests LOG...   what run_suite left: the numbers of tests, the names of those that failed, and of the last of a process that
# crashed or was stopped
count_tests() {
  awk '
    FNR == 1 { last = FILENAME; sub(/.*\//, "", last); sub(/\.log$/, "", last) }
    /^\[ RUN      \]/ { last = $4 }
    /^\[       OK \]/ { ++passed }
    /^\[  SKIPPED \].* ms\)$/ { ++skipped }
    /^\[  FAILED  \].* ms\)$/ && ++failed <= 20 { sub(/,$/, "", $4); names = names " " $4 }
    /^exit status/ && $3 > 1 { broken = broken " " last }
    END {
      printf "%d passed, %d skipped, %d failed%s", passed, skipped, failed, names ? ":" names : ""
      if (broken) printf "; CRASHED or STOPPED:%s", broken
    }' "$@"
}

# usage: rate NAME   the median tokens/s of a part, without its first interval and those of its first ten updates; nothing where it
# measured none
rate() {
  cat "$out/$1.jsonl" "$out/$1/metrics.jsonl" 2>/dev/null |
    sed -n 's/^{"step": *\([0-9]*\),.*"tokens_per_second": *\([0-9.e+]*\).*/\1 \2/p; s/^{"step_ms":.*"tokens_per_second": *\([0-9.e+]*\).*/0 \1/p' |
    awk 'NR == 1 { first = $2 } NR > 1 && $1 > 10 { print $2 } END { if (NR == 1) print first }' | sort -g |
    awk '{ rate[NR] = $1 } END { if (NR) printf "%.0f\n", (rate[int((NR + 1) / 2)] + rate[int(NR / 2) + 1]) / 2 }' || true
}

# usage: fastest NAME...   the one with the highest rate; nothing where none has one
fastest() {
  local name rate
  for name in "$@"; do
    rate=$(rate "$name")
    [[ -z $rate ]] || echo "$rate $name"
  done | sort -g | sed -n '$s/.* //p'
}

# usage: ratio NAME NAME [WANTED]   the speed of one part beside that of another, where both were measured
ratio() {
  local one other
  one=$(rate "$1") other=$(rate "$2")
  [[ -z $one || -z $other ]] ||
    note "$1 is $(awk -v a="$one" -v b="$other" 'BEGIN { printf "%.2f", a / b }') times as fast as $2${3:+ (wanted: at least $3)}"
}

losses() { sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' "$out/$1/metrics.jsonl"; }

# usage: compare_losses WHAT UPDATES WINDOW MOST NAME NAME   of two runs of so many updates, where there are both: means over WINDOW updates,
# which may differ by MOST percent
compare_losses() {
  [[ -e $out/$5/metrics.jsonl && -e $out/$6/metrics.jsonl ]] || return 0
  paste <(losses "$5") <(losses "$6") | awk -v what="$1" -v updates="$2" -v window="$3" -v most="$4" '
    NF == 2 {
      first[++count] = $1; second[count] = $2
      a += $1 - first[count - window]; b += $2 - second[count - window]
      difference = 100 * (a > b ? a - b : b - a) / a
      if (count >= window && difference > largest) largest = difference
    }
    END { printf "%s: the losses of %d updates (wanted: %d) differ by at most %.3g %% (wanted: %g): %s\n",
          what, count, updates, largest, most, count == updates && largest <= most ? "good" : "WRONG" }' | tee -a "$out/summary.txt"
}

# usage: bench VERB MODEL SECONDS FLAGS...   gpt-bench with the flags in the array MODEL, or ladder_MODEL; VERB may have a word after it
bench() {
  local verb=($1) name=${1%% *}-${2#ladder_}
  local -n flags=$2
  part "$3" "$name" build/bin/gpt-bench "${verb[@]}" "${flags[@]}" "${@:4}" --results "$out/$name"
  [[ $1 == ops ]] || grep -sh '^|' "$out/$name"/*.md | tee -a "$out/summary.txt" || true  # its tables
}

# usage: ladder VERB MODEL SECONDS MINUTES   VERB: ladder, or combo and its rungs. The full set is judged by the runs that alternate with
# the start's: the product of the rungs' gains multiplies their noise too.
ladder() {
  bench "$1" "ladder_$2" "$3" --minutes "$4"
  local results=("$out/${1%% *}-$2"/*.json)
  [[ -e ${results[0]} ]] || return 0
  "$python" - "$2" "${results[0]}" <<'PYTHON' | tee -a "$out/summary.txt" || note "FAILED to read ${results[0]}"
import json, sys
starts = [row for row in json.load(open(sys.argv[2]))["switched"] if row["name"] == "start" and row["measurement"]]
found = f"{1 / starts[0]['gain']:.2f} times as fast as its start" if starts else "not measured beside its start: the time was over"
print(f"the full set of the ladder, {sys.argv[1]}: {found} (wanted of gpt2: at least 10)")
PYTHON
}

# usage: configure NAME FLAGS...   writes NAME.yaml for both programs
configure() {
  local of=${1%%[-_]*}
  within 30 "${with_torch[@]}" build/bin/gpt-train "${@:2}" --max_steps "${updates[$of]}" --warmup_steps 10 --log_interval "${every[$of]}" \
    --print-config >"$out/$1.yaml" 2>"$out/$1.log" || note "$1: its configuration FAILED: $(tail -n 1 "$out/$1.log")"
}

# usage: ours NAME SECONDS MODE...   this program with NAME.yaml, for at most so many seconds in each mode: eager, or one of compile_mode.
# gpt-bench writes no checkpoint: one of the largest model takes 19 GB.
ours() {
  local of=${1%%[-_]*} mode flags
  for mode in "${@:3}"; do
    if [[ $mode == eager ]]; then flags=(--use_compile false); else flags=(--compile_mode "$mode"); fi
    part "$2" "$1-$mode" build/bin/gpt-bench measure --config "$out/$1.yaml" "${flags[@]}" --warm-up "${every[$of]}" \
      --updates $((updates[$of] - every[$of])) --result "$out/$1-$mode.jsonl"
  done
}

# usage: pytorch NAME SECONDS MODE...   PyTorch with NAME.yaml: eager, or a mode of pytorch_baseline.py's --compile
pytorch() {
  local of=${1%%[-_]*} mode flags
  for mode in "${@:3}"; do
    if [[ $mode == eager ]]; then flags=(); else flags=(--compile "$mode"); fi
    part "$2" "$1-pytorch-$mode" "$python" -B scripts/pytorch_baseline.py --config "$out/$1.yaml" --text "${text[$of]}" --dtype bfloat16 \
      "${flags[@]}" --metrics "$out/$1-pytorch-$mode.jsonl"
  done
}

# usage: compile_pytorch NAME SECONDS MODE...   only so that the same of pytorch() finds compiled what it needs, in TORCHINDUCTOR_CACHE_DIR
compile_pytorch() {
  local mode
  for mode in "${@:3}"; do
    part "$2" "$1-pytorch-compiles-$mode" "$python" -B scripts/pytorch_baseline.py --config "$out/$1.yaml" --text "${text[${1%%[-_]*}]}" \
      --dtype bfloat16 --compile "$mode" --max-steps 3 --metrics /dev/null
  done
}

# usage: beside NAME [WANTED]   the fastest of our modes beside PyTorch's fastest
beside() {
  ratio "$(fastest "$1"-{default,reduce-overhead,max-autotune})" "$(fastest "$1"-pytorch-{eager,blocks,default,reduce-overhead})" "${2:-}"
}
