#!/usr/bin/env bash
# What the compiler made of every CUDA kernel, for each architecture: registers, shared memory, spilled bytes, accesses to memory
# 16 bytes wide, and how much of a multiprocessor's threads its largest block leaves running. No GPU is needed. It fails where a
# kernel spills, or where one for aligned tensors has no accesses of 16 bytes.
#
# usage: scripts/kernel_report.sh [ARCHITECTURE...]     for example 80 90, which is the default; it needs a build with --cuda
set -euo pipefail
source "$(dirname "$0")/steps.sh"

[[ -f build/compile_commands.json ]] || fail "build/compile_commands.json is missing: run ./scripts/setup.sh --cuda first"
exec python3 -B scripts/kernel_report.py build/compile_commands.json ${@:-80 90}
