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
exec .deps/venv/bin/ctest --test-dir build --output-on-failure --no-tests=error -j 2 ${skipped:+-LE "^($skipped)\$"} "$@"
