#!/usr/bin/env bash
# Tries the packages of scripts/package.sh in bare systems, each a minimal root made by debootstrap: unpacks or installs them, trains the
# quick start for some steps, stops and resumes it, generates, exports, prepares and diagnoses. Prints what is downloaded and unpacked, and
# the seconds from the end of the download to the first training step. Needs root, debootstrap, the network and 20 GB of disk.
#
# usage: scripts/try_packages.sh [SYSTEM...]     of debian12, ubuntu22.04 and ubuntu24.04; default: all
# ROOTS (default /var/tmp/gpt-train-roots) keeps the bare systems; PACKAGES (default build-package/packages) has the packages.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

declare -A suites=([debian12]=bookworm [ubuntu22.04]=jammy [ubuntu24.04]=noble)
systems=("$@")
(($#)) || systems=(debian12 ubuntu22.04 ubuntu24.04)
roots=${ROOTS:-/var/tmp/gpt-train-roots}
packages=${PACKAGES:-$PWD/build-package/packages}

for system in "${systems[@]}"; do
  [[ ${suites[$system]:-} ]] || fail "unknown system '$system'; usage: scripts/try_packages.sh [debian12|ubuntu22.04|ubuntu24.04 ...]"
done
(($(id -u) == 0)) || fail "a bare system can only be made by root: run this with sudo"
command -v debootstrap >/dev/null || fail "there is no debootstrap: apt-get install debootstrap"
compgen -G "$packages/*.tar.gz" >/dev/null && compgen -G "$packages/*.whl" >/dev/null ||
  fail "$packages lacks an archive or a wheel: run ./scripts/package.sh first"

make_root() {
  local suite=${suites[$1]} scripts=/usr/share/debootstrap/scripts script= components=main
  [[ $1 == debian* ]] || components=main,universe
  [[ -e $scripts/$suite ]] || script=$scripts/jammy  # for an Ubuntu that is newer than this debootstrap
  rm -rf "$roots/$1.part"
  debootstrap --variant=minbase --components=$components ${script:+--no-check-gpg} "$suite" "$roots/$1.part" ${script:+"" "$script"} >"$roots/$1.log" 2>&1 ||
    fail "debootstrap failed: $(tail -n 1 "$roots/$1.log") (log: $roots/$1.log)"
  mv "$roots/$1.part" "$roots/$1"
}

# What follows runs inside a bare system, in the order of try_archive and try_wheel.

# usage: train_and_more BIN CONFIG   in a folder that a run may be made in; prints when the first step was done
train_and_more() {
  local bin=$1 command=("$1/gpt-train" --config "$2" --output_dir run --max_steps 120 --log_interval 1 --eval_interval 0) process
  "${command[@]}" >log 2>&1 &
  process=$!
  until grep -qs '"loss"' run/metrics.jsonl; do
    kill -0 $process 2>/dev/null || { cat log >&2 && return 1; }
    sleep 0.1
  done
  first_step=$(date +%s.%N)
  kill -INT $process
  local status=0
  wait $process || status=$?
  ((status == 130)) || { echo "interrupted, gpt-train left with $status:" >&2 && cat log >&2 && return 1; }
  "${command[@]}" >>log 2>&1 || { cat log >&2 && return 1; }
  grep -q '"step":120,' run/metrics.jsonl
  "$bin/gpt-generate" --checkpoint run "ROMEO." --max-new-tokens 20 --seed 1 >text 2>>log
  grep -q '^ROMEO\.' text
  "$bin/gpt-export" --checkpoint run --output exported >>log 2>&1
  [[ -s exported/model.safetensors ]]
  "$bin/gpt-prepare" --input text --tokenizer gpt2 --output tokens --validation-fraction 0 >>log 2>&1
  "$bin/gpt-diagnose" --config "$2" --no-probe >diagnosis 2>>log
  "$bin/gpt-bench" --version >>log
  # An environment with other libraries of the same names does not matter.
  mkdir -p other
  cp /lib/x86_64-linux-gnu/libutil.so.1 other/libc10.so
  cp other/libc10.so other/libtorch_cpu.so
  LD_LIBRARY_PATH=$PWD/other "$bin/gpt-train" --version >>log
}

# usage: tell WHAT BEGAN DOWNLOADED UNPACKED   sizes in bytes
tell() {
  awk -v what="$1" -v began="$2" -v step="$first_step" -v down="$3" -v up="$4" 'BEGIN {
    printf "  %s: first step %.1f s after the download; %d MB downloaded, %d MB unpacked\n", what, step - began, down / 1e6, up / 1e6 }'
}

bytes_in() { du -sb --total "$@" | tail -n 1 | cut -f 1; }

try_archive() {
  cd /root
  local began folder
  began=$(date +%s.%N)
  tar -xf /packages/*.tar.gz
  folder=$(echo /root/gpt-train-*)
  cd "$folder"
  train_and_more "$folder/bin" configs/shakespeare_char.yaml
  tell archive "$began" "$(bytes_in /packages/*.tar.gz)" "$(bytes_in "$folder"/{bin,lib,share})"
  grep -E 'LibTorch|CUDA' diagnosis
  mv "$folder" "/opt/a place"  # it may be moved
  cd / && "/opt/a place/bin/gpt-train" --version | head -n 1
}

# usage: install_and_try WHAT PREFIX INSTALL...   INSTALL: the command that installs below PREFIX, without what it installs
install_and_try() {
  local what=$1 prefix=$2 began before
  shift 2
  mkdir -p "$prefix"
  before=$(bytes_in "$prefix")
  began=$(date +%s.%N)
  "$@" --no-index --no-deps --no-compile --quiet /wheels/*.whl  # no Python will run what is in them
  rm -rf /tmp/try && mkdir -p /tmp/try && cd /tmp/try
  train_and_more "$prefix/bin" configs/shakespeare_char.yaml
  tell "$what" "$began" "$(bytes_in /wheels/*.whl)" $(($(bytes_in "$prefix") - before))
  [[ $(head -c 4 "$prefix/bin/gpt-train") == $'\x7fELF' && -s $prefix/share/gpt-train/data/shakespeare.txt ]]
}

try_wheel() {
  export DEBIAN_FRONTEND=noninteractive PIP_ROOT_USER_ACTION=ignore PIP_NO_WARN_SCRIPT_LOCATION=0 PIP_DISABLE_PIP_VERSION_CHECK=1
  { apt-get update && apt-get install -y --no-install-recommends python3 python3-venv python3-pip; } >/root/apt.log 2>&1 ||
    { tail -n 3 /root/apt.log >&2 && return 1; }
  local system=(python3 -m pip)
  [[ ! -e $(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')/EXTERNALLY-MANAGED ]] || export PIP_BREAK_SYSTEM_PACKAGES=1
  # LibTorch and the two small libraries that it asks for, without the 2 GB of others that torch requires for GPUs.
  "${system[@]}" download --no-deps --quiet -d /wheels $LIBTORCH
  cp /packages/*.whl /wheels/
  python3 -m venv /root/venv
  install_and_try "wheel in a venv" /root/venv /root/venv/bin/python -m pip install
  grep -E 'LibTorch|CUDA' diagnosis
  rm -rf /root/venv
  HOME=/root/person install_and_try "wheel, pip install --user" /root/person/.local "${system[@]}" install --user
  rm -rf /root/person
  install_and_try "wheel, for all users" /usr/local "${system[@]}" install
  "${system[@]}" uninstall --yes --quiet gpt-train
  [[ ! -e /usr/local/bin/gpt-train && ! -e /usr/local/lib/gpt-train/libgomp.so.1 ]]
}

# usage: inside ROOT FUNCTION   runs one of the functions above in a root, with the packages in /packages
inside() {
  mkdir -p "$1/packages"
  cp "$packages"/* "$1/packages/"
  cp /etc/resolv.conf "$1/etc/resolv.conf"
  cp /etc/ssl/certs/ca-certificates.crt "$1/root/certificates"  # of whom this machine trusts
  unshare --mount --pid --fork --kill-child bash -c '
    mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc"
    exec chroot "$1" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
      PIP_CERT=/root/certificates LIBTORCH="$3" bash -euo pipefail -c "$2"' bash "$1" \
    "$(declare -f train_and_more tell bytes_in try_archive install_and_try try_wheel); $2" \
    "$(grep -oE '^[a-z-]+==[0-9.]+' scripts/requirements/cpu.txt | paste -sd ' ')"
}

try_system() {
  local run kind
  [[ -d $roots/$1 ]] || report "Bare $1" make_root "$1"
  for kind in archive wheel; do
    run=$(mktemp -d "$roots/run.XXXXXX")
    cp -a "$roots/$1/." "$run"
    local status=0
    inside "$run" "try_$kind" || status=$?
    rm -rf --one-file-system "$run"
    ((status == 0)) || fail "the $kind does not work on $1"
  done
}

mkdir -p "$roots"
for system in "${systems[@]}"; do
  say "$system:"
  try_system "$system"
done
say "The packages work on ${systems[*]}."
