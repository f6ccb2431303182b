#!/usr/bin/env bash
# The source checks, the same set-up as quickstart.sh but with the tests, the data that they read, then every test. The
# CUDA code is compiled too, for one architecture if there is no GPU; --cpu leaves it out.
#
# usage: scripts/test.sh [--cpu|--cuda] [CTEST ARGUMENT...]     for example: scripts/test.sh -R tokenizer
set -euo pipefail
source "$(dirname "$0")/steps.sh"

device=(--cuda)
case ${1:-} in
  --cpu | --cuda) device=("$1") && shift ;;
esac
scripts/check.sh
scripts/setup.sh "${device[@]}" --tests
scripts/get_data.sh
exec .deps/venv/bin/ctest --test-dir build --output-on-failure --no-tests=error -j 2 "$@"
