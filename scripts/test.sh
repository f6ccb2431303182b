#!/usr/bin/env bash
# The source checks that need no set-up, the same set-up as quickstart.sh but with the tests, clang-format, the data
# that the tests read, then the tests. The CUDA code is compiled too, for one architecture if there is no GPU; --cpu leaves it
# out. --skip-KIND leaves out the tests of that kind: unit, e2e (the programs, driven as a user would), attack (kills, failing
# calls, damaged files), fuzz or bench (the programs that time operators, one round).
#
# usage: scripts/test.sh [--cpu|--cuda] [--all] [--repeat N] [--skip-KIND...] [CTEST ARGUMENT...]
#   --all       the attack too, fuzzing for longer, and single tests that take long: what a release needs
#   --repeat N  the tests N times in random order, beside two programs that keep the processor busy: none may fail for that
#
# for example: scripts/test.sh --skip-e2e -R tokenizer
set -euo pipefail
source "$(dirname "$0")/steps.sh"

kinds="unit, e2e, attack, fuzz or bench"
device=(--cuda)
skipped=
all=
repeat=
while [[ ${1:-} ]]; do
  case $1 in
    --cpu | --cuda) device=("$1") ;;
    --all) all=1 ;;
    --repeat)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "--repeat: '${2:-}' is not a number of times, such as 10"
      repeat=$2
      shift
      ;;
    --skip-unit | --skip-e2e | --skip-attack | --skip-fuzz | --skip-bench) skipped+="${skipped:+|}${1#--skip-}" ;;
    --skip-*) fail "there is no kind of tests '${1#--skip-}': $kinds" ;;
    *) break ;;
  esac
  shift
done
[[ $all || $skipped == *attack* ]] || skipped+="${skipped:+|}attack"
[[ ! $all ]] || export GPT_ALL_TESTS=1
scripts/check.sh --sources
scripts/setup.sh "${device[@]}" --tests
scripts/check.sh --format
scripts/get_data.sh

run_tests() {
  .deps/venv/bin/ctest --test-dir build --output-on-failure --no-tests=error -j 2 ${skipped:+-LE "^($skipped)\$"} "$@"
}

# In another order each time: of CTest's tests, of GoogleTest's (GTEST_SHUFFLE) and of Python's (GPT_TEST_ORDER).
run_tests_again_and_again() {
  local time passed=0
  busy=()
  trap 'kill "${busy[@]}"' EXIT  # after Ctrl-C too, which programs in the background do not get
  for _ in 1 2; do
    bash -c 'while :; do :; done' &
    busy+=($!)
  done
  for ((time = 1; time <= repeat; ++time)); do
    say "Time $time of $repeat"
    ! GTEST_SHUFFLE=1 GTEST_RANDOM_SEED=$time GPT_TEST_ORDER=$time run_tests --schedule-random "$@" || passed=$((passed + 1))
  done
  say "$passed of $repeat times every test passed"
  ((passed == repeat))
}

status=0
if [[ $repeat ]]; then run_tests_again_and_again "$@" || status=$?; else run_tests "$@" || status=$?; fi
# The single tests behind those of CTest, what took how long to compile, and in the last line what was left out and why. CTest itself
# has said how long each kind of test took.
log=build/Testing/Temporary/LastTest.log
awk '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { passed += $1; failed += $3 }
  END { printf "unit tests: %d passed, %d failed\n", passed, failed }' $log
awk '
  NR > 1 { seconds[$4 ~ /\.cu\.o$/ ? "CUDA code" : $4 ~ /^(tests|bin\/.*(test|fuzz|bench))/ ? "tests" : "programs"] += ($2 - $1) / 1000 }
  END { for (kind in seconds) printf "built: %s in %d seconds of a core\n", kind, seconds[kind] }' build/.ninja_log
awk -v kinds="${skipped//|/, }" '
  /^skipped [0-9]+: / { count[substr($0, index($0, ": ") + 2)] += $2 }
  /\.\.\. skipped / { count[substr($0, index($0, "skipped ") + 8)]++ }
  END {
    if (kinds) text = "; tests of the kinds " kinds
    for (reason in count) text = text "; " count[reason] " since " reason
    print "left out: " (text ? substr(text, 3) : "nothing")
  }' $log
exit $status
