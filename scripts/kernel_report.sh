#!/usr/bin/env bash
# What the compiler made of every CUDA kernel, for each architecture: registers, shared memory, spilled bytes, accesses to memory
# 16 bytes wide, how much of a multiprocessor's threads its largest block leaves running, and how often it moves the elements of its tensors
# to or from memory beside the least possible, which whoever writes a kernel enters in kernel_report.py. No GPU is needed. It fails where a
# kernel spills, has no such entry, or is for aligned tensors and less than half of its loads or stores have 16 bytes.
#
# usage: scripts/kernel_report.sh [ARCHITECTURE...]     for example 80 90, which is the default; it needs set-up with --cuda --tests
set -euo pipefail
source "$(dirname "$0")/steps.sh"

[[ -f build/compile_commands.json ]] || fail "build/compile_commands.json is missing: run ./scripts/setup.sh --cuda first"
exec python3 -B scripts/kernel_report.py build/compile_commands.json ${@:-80 90}
