#!/usr/bin/env bash
# Runs the tests of the operators on a GPU, whose shapes are small, under the four tools of compute-sanitizer: memcheck, racecheck,
# synccheck and initcheck. Each suite runs with each tool in a process of its own, for at most 150 seconds, and nine minutes in all (times
# PATIENCE).
#
# Only errors in the kernels of this program matter; those in LibTorch's are counted apart, where the tool sees them. memcheck and initcheck
# watch every kernel, because memory that a kernel they do not watch has filled counts as never written; racecheck and synccheck only
# those of this program, because they take minutes over cuDNN's. Every tensor has memory of its own here, so that its end is that of an
# allocation.
#
# FOLDER/summary.txt has a line for each tool and suite, FOLDER/TOOL-SUITE.log what it printed. Exits with 1 where an error was found or a
# suite did not come to its end. It needs what measure_gpu.sh needs, and runs from its archive too.
#
# usage: scripts/sanitize_gpu.sh FOLDER [SUITES]   SUITES: a regular expression for names of suites; those with kernels where it is left out
set -euo pipefail
source "$(dirname "$0")/steps.sh"

out=$(realpath -m "${1:?usage: scripts/sanitize_gpu.sh FOLDER [SUITES]}") device=cuda
source scripts/measured_parts.sh
sanitizer=$(cuda_tool compute-sanitizer)
mapfile -t names < <(suites | grep -E -- "${2:-$kernel_suites}")
((${#names[@]})) || fail "no suite of gpt_tests matches '${2:-}'"
mkdir -p "$out"
export PYTORCH_NO_CUDA_MEMORY_CACHING=1

# usage: describe LOG   the errors in a tool's log; the first line of each says what was wrong, the same or the next one in which kernel
describe() {
  awk '
    /^=========     at |Race reported between/ && / at (0x[0-9a-f]+ in )?(void )?gpt::/ && !ours++ { first = ($0 ~ /Race/ ? "" : what) $0 }
    /^========= / { what = $0 }
    /^=========.* SUMMARY: / { sub(/.*SUMMARY: /, ""); found = $1; ended = 1 }
    END {
      gsub(/=+ +/, " ", first)
      if (ours) printf "ERRORS: %d, the first:%s", ours, substr(first, 1, 300); else printf "no error"
      if (found > ours) printf ", %d in LibTorch", found - ours
      if (!ended) printf ", NOT ENDED"
    }' "$1"
}

# usage: sanitize TOOL:SUITE
sanitize() {
  local tool=${1%%:*} suite=${1#*:} began=$SECONDS log filter=()
  log=$out/$tool-${suite//\//-}.log
  [[ ! $tool =~ racecheck|synccheck ]] || filter=(--kernel-name kns=3gpt3ops)  # in mangled names
  # Every process takes a port; the tests' own exit status is read from their log.
  run_suite 150 "$log" "$suite" "$sanitizer" --tool "$tool" "${filter[@]}" --target-processes all --max-connections 200 \
    --check-exit-code no --report-api-errors no --show-backtrace no --print-limit 2000
  note "$(printf '%-10s %-28s' "$tool" "$suite")$(describe "$log"), in $((SECONDS - began)) s; tests: $(count_tests "$log")"
}

note "=== compute-sanitizer, $(date -u +%Y-%m-%dT%H:%MZ)"
words=()
for tool in memcheck racecheck synccheck initcheck; do words+=("${names[@]/#/$tool:}"); done
in_parallel sanitize "${words[@]}"
say "Results: $out/summary.txt; all of them in one file: $out.tar.gz"
! tail -n ${#words[@]} "$out/summary.txt" | grep -qE 'ERRORS|NOT ENDED|CRASHED'
