#!/usr/bin/env bash
# Puts the programs on the PATH: PREFIX/bin, with the configs, the default corpus and GPT-2's vocabulary in PREFIX/share/gpt-train.
# They keep using LibTorch in this checkout's .deps/, so the checkout must stay where it is.
#
# usage: scripts/install.sh [--cpu|--cuda] [PREFIX]     (default: ~/.local)
set -euo pipefail
source "$(dirname "$0")/steps.sh"

device=()
case ${1:-} in
  --cpu | --cuda) device=("$1") && shift ;;
  -*) fail "unknown argument '$1'; usage: scripts/install.sh [--cpu|--cuda] [PREFIX]" ;;
esac
prefix=$(cd "$OLDPWD" && realpath -m -- "${1:-$HOME/.local}")

scripts/setup.sh "${device[@]}"
scripts/get_data.sh
mkdir -p "$prefix/bin" "$prefix/share" 2>/dev/null && [[ -w $prefix/bin && -w $prefix/share ]] ||
  fail "$prefix is not writable by $(id -un): name another PREFIX, or run this with sudo"
.deps/venv/bin/cmake --install build --prefix "$prefix" >.deps/log/install.log 2>&1 ||
  fail "cmake --install failed: $(grep -A 2 -m 1 'CMake Error' .deps/log/install.log | tr -s '\n ' ' ') (log: .deps/log/install.log)"

say "Installed $(cd "$prefix/bin" && ls gpt-* | paste -sd ' ') in $prefix/bin."
[[ :$PATH: == *":$prefix/bin:"* ]] ||
  warn "$prefix/bin is not on your PATH; add it: echo 'export PATH=\"$prefix/bin:\$PATH\"' >> ~/.profile, and log in again"
say "Try: gpt-train --config $prefix/share/gpt-train/configs/shakespeare_char.yaml"
