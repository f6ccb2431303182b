#!/usr/bin/env bash
# The source checks that need no set-up, the same set-up as quickstart.sh but with the tests, clang-format, the data
# that the tests read, then every test. The CUDA code is compiled too, for one architecture if there is no GPU; --cpu leaves it
# out. --skip-KIND leaves out the tests of that kind: unit, e2e (the programs, driven as a user would), attack (kills, failing
# calls, damaged files), fuzz or bench (the programs that time operators, one round).
#
# usage: scripts/test.sh [--cpu|--cuda] [--skip-KIND...] [CTEST ARGUMENT...]     for example: scripts/test.sh --skip-e2e -R tokenizer
set -euo pipefail
source "$(dirname "$0")/steps.sh"

device=(--cuda)
skipped=
while [[ ${1:-} ]]; do
  case $1 in
    --cpu | --cuda) device=("$1") ;;
    --skip-unit | --skip-e2e | --skip-attack | --skip-fuzz | --skip-bench) skipped+="${skipped:+|}${1#--skip-}" ;;
    --skip-*) fail "there is no kind of tests '${1#--skip-}': unit, e2e, attack, fuzz or bench" ;;
    *) break ;;
  esac
  shift
done
scripts/check.sh --sources
scripts/setup.sh "${device[@]}" --tests
scripts/check.sh --format
scripts/get_data.sh

status=0
.deps/venv/bin/ctest --test-dir build --output-on-failure --no-tests=error -j 2 ${skipped:+-LE "^($skipped)\$"} "$@" || status=$?
# The single tests behind those of CTest, why how many were skipped, and what took how long to compile, each in one line. CTest itself
# has said how long each kind of test took.
awk '
  /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { passed += $1; failed += $3 }
  /^skipped [0-9]+: / { count[substr($0, index($0, ": ") + 2)] += $2 }
  /\.\.\. skipped / { count[substr($0, index($0, "skipped ") + 8)]++ }
  END {
    printf "unit tests: %d passed, %d failed\n", passed, failed
    for (reason in count) printf "skipped %d: %s\n", count[reason], reason
  }' build/Testing/Temporary/LastTest.log
awk '
  NR > 1 { seconds[$4 ~ /\.cu\.o$/ ? "CUDA code" : $4 ~ /^(tests|bin\/.*(test|fuzz|bench))/ ? "tests" : "programs"] += ($2 - $1) / 1000 }
  END { for (kind in seconds) printf "built: %s in %d seconds of a core\n", kind, seconds[kind] }' build/.ninja_log
exit $status
