#!/usr/bin/env bash
# Puts the programs on the PATH: PREFIX/bin, with the configs, the default corpus and GPT-2's vocabulary in PREFIX/share/gpt-train, and
# their manual pages and what completes their flags in bash and zsh in PREFIX/share.
# They keep using LibTorch in this checkout's .deps/, so the checkout must stay where it is. Run again after `git pull`, it replaces
# what it installed before; --remove takes that away. Files that somebody changed since are kept in both cases.
#
# usage: scripts/install.sh [--cpu|--cuda|--remove] [PREFIX]     (default: ~/.local)
set -euo pipefail
source "$(dirname "$0")/steps.sh"

usage="usage: scripts/install.sh [--cpu|--cuda|--remove] [PREFIX]"
device=() remove=
case ${1:-} in
  --cpu | --cuda) device=("$1") && shift ;;
  --remove) remove=yes && shift ;;
  -h | --help)
    sed -n '2,/^# usage/s/^# \?//p' scripts/install.sh
    exit
    ;;
  -*) fail "unknown argument '$1'; $usage" ;;
esac
prefix=$(cd "$OLDPWD" && realpath -m -- "${1:-$HOME/.local}")
installed=$prefix/share/gpt-train/installed_files  # their sha256 and paths
refuse_unwritable() { fail "$prefix is not writable by $(id -un): name another PREFIX, or run this with sudo"; }

# usage: are_theirs < lines of `installed`   the paths of those that are there and are not what was installed
are_theirs() {
  local hash file
  while read -r hash file; do
    [[ ! -e $file || $(sha256sum <"$file") == "$hash  -" ]] || printf '%s\n' "$file"
  done
}

# usage: remove_ours < lines of `installed`   removes those that are what was installed, and folders of ours that are empty then
remove_ours() {
  local hash file
  while read -r hash file; do
    [[ $(sha256sum <"$file") != "$hash  -" ]] || rm -f -- "$file"
  done 2>/dev/null
  find "$prefix"/{lib/gpt-train,share/{gpt-train,bash-completion,zsh,man}} -depth -type d -empty -delete 2>/dev/null || true
}

if [[ $remove ]]; then
  [[ -f $installed ]] || fail "$installed is missing: there is nothing in $prefix that this script installed"
  [[ -w $prefix/bin && -w ${installed%/*} ]] || refuse_unwritable
  lines=$(<"$installed")
  theirs=$(are_theirs <<<"$lines" | paste -sd ' ')
  rm -f -- "$installed"
  remove_ours <<<"$lines"
  say "Removed the programs from $prefix.${theirs:+ Left in place, since they were changed: $theirs}"
  say "Runs stay where they are. Prepared text is in ~/.cache/gpt-train; everything else is in this checkout, $PWD."
  exit
fi

# The kind of the build that is there, so that bringing it up to date does not compile another one.
if ! ((${#device[@]})) && [[ -f build/CMakeCache.txt ]]; then
  if grep -q '^GPT_CUDA:.*=ON' build/CMakeCache.txt; then
    device=(--cuda) && say "The build is with CUDA, and stays so (--cpu changes it)."
  else
    device=(--cpu) && say "The build is for CPUs, and stays so (--cuda changes it)."
  fi
fi
scripts/setup.sh "${device[@]}"
scripts/get_data.sh
mkdir -p "$prefix/bin" "$prefix/share" 2>/dev/null && [[ -w $prefix/bin && -w $prefix/share ]] || refuse_unwritable
before=
if [[ -f $installed ]]; then
  before=$(<"$installed")
  while read -r file; do
    mv -- "$file" "$file.old"
    warn "$file was changed since it was installed: your file is now $file.old"
  done < <(are_theirs <<<"$before")
fi
.deps/venv/bin/cmake --install build --prefix "$prefix" >.deps/log/install.log 2>&1 ||
  fail "cmake --install failed: $(grep -A 2 -m 1 'CMake Error' .deps/log/install.log | tr -s '\n ' ' ') (log: .deps/log/install.log)"
xargs -d '\n' sha256sum <build/install_manifest.txt >"$installed"
# What an earlier version installed and this one does not.
awk 'NR == FNR { now[substr($0, 67)]; next } !(substr($0, 67) in now)' "$installed" - <<<"$before" | remove_ours

say "Installed $(cd "$prefix/bin" && ls gpt-* | paste -sd ' ') in $prefix/bin."
[[ :$PATH: == *":$prefix/bin:"* ]] ||
  warn "$prefix/bin is not on your PATH; add it: echo 'export PATH=\"$prefix/bin:\$PATH\"' >> ~/.profile, and log in again"
say "Try: gpt-train --config $prefix/share/gpt-train/configs/shakespeare_char.yaml"
