#!/usr/bin/env bash
# Trains, saves, takes up again and measures every two techniques that go together, a pair at a time; the tests take many pairs at once.
# Needs the tests (scripts/setup.sh --tests). It takes hours; Ctrl-C ends it.
#
# usage: scripts/try_pairs.sh
set -euo pipefail
source "$(dirname "$0")/steps.sh"

[[ -x build/bin/gpt_tests ]] || fail "the tests are not built: run scripts/setup.sh --tests"
GPT_ALL_TESTS=1 exec build/bin/gpt_tests bench --gtest_filter='TechniquePairs.*'
