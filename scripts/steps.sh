# Sourced by the scripts beside it: how they print, fail, and skip what an earlier run has done. They run in the checkout's root.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C.UTF-8  # tools print untranslated messages, which can then be recognised; file names stay UTF-8
step_is_open=  # set while a line waits for its "done"

say() { printf '%s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
fail() {
  [[ -z $step_is_open ]] || say failed
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# The set-up's Python where there is one, otherwise the system's, which must have torch.
python_with_torch() {
  if [[ -x .deps/venv/bin/python ]]; then echo .deps/venv/bin/python; else echo python3; fi
}

# usage: report TITLE COMMAND...   runs COMMAND between "TITLE ... " and "done in N s"
report() {
  local began=$SECONDS
  printf '%s ... ' "$1"
  step_is_open=1
  "${@:2}"
  step_is_open=
  say "done in $((SECONDS - began)) s"
}

# usage: step NAME INPUTS TITLE COMMAND...
# Reports COMMAND, unless it succeeded before with the same INPUTS; .deps/stamps/NAME remembers their hash.
step() {
  local stamp=.deps/stamps/$1 hash
  hash=$(sha256sum <<<"$2")
  [[ ! -e $stamp || $(<"$stamp") != "$hash" ]] || return 0
  rm -f "$stamp"
  report "${@:3}"
  printf '%s\n' "$hash" >"$stamp"
}

# usage: need_space GIGABYTES WHAT
need_space() {
  local free
  free=$(($(df --output=avail -k . | tail -n 1) / 1024 / 1024))
  ((free >= $1)) || fail "$2 needs $1 GB of free disk space and $PWD has $free GB: free some, or put the checkout on another disk"
}

# usage: run_pip LOG ARGUMENT...   the private Python's pip; a failure is explained in one line
run_pip() {
  local log=.deps/log/$1.log
  shift
  rm -rf .deps/tmp/*
  # TMPDIR: /tmp is often a small memory disk, and wheels are large.
  TMPDIR=$PWD/.deps/tmp .deps/venv/bin/python -m pip --no-input --disable-pip-version-check "$@" </dev/null >"$log" 2>&1 || {
    local reason
    if grep -q 'DO NOT MATCH THE HASHES' "$log"; then
      reason="a downloaded package does not have the sha256 that scripts/requirements pins: run again, and if that persists, do not trust this network or mirror"
    elif grep -q 'No space left' "$log"; then
      reason="the disk is full: free some space and run again"
    elif grep -qE 'NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|Network is unreachable|ProxyError|Failed to resolve|Connection (refused|timed out|broken|aborted)|IncompleteRead' "$log"; then
      reason="the Python package index cannot be reached: check the network (or pip's proxy and index settings) and run again"
    elif grep -q 'SSLError' "$log"; then
      reason="the Python package index's certificate is not trusted: check the clock and the proxy's certificate, and run again"
    elif grep -q 'No matching distribution' "$log"; then
      reason="the package index has no $(sed -n 's/.*No matching distribution found for \([^ ]*\).*/\1/p' "$log" | tail -n 1) for this Python: check pip's index settings"
    else
      reason="pip failed: $(grep 'ERROR' "$log" | tail -n 1)"
    fi
    fail "$reason (log: $log)"
  }
}
