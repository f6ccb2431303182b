#!/usr/bin/env bash
# From a bare machine to built programs in build/bin/: system packages, LibTorch and build tools in .deps/, configure, build.
# Finished steps are not repeated: a second run takes seconds and needs no network; an interrupted one continues.
#
# usage: scripts/setup.sh [--cpu|--cuda] [--tests|--oracles|--deps]
#   --cpu      leave the CUDA code out
#   --cuda     compile it; nvcc comes from the nvidia wheels if the system has none of version 13
#              (without either: --cuda where there is an NVIDIA GPU or such an nvcc)
#   --tests    install PyTorch for the tests and what scripts/check.sh needs too, and build the tests
#   --oracles  the same, the programs that scripts/try_interchange.sh gives exported models to: transformers, llama.cpp, CTranslate2,
#              and on Debian the browser that pages are tested in
#   --deps     install what a build needs, and build nothing
set -euo pipefail
source "$(dirname "$0")/steps.sh"
source scripts/machine.sh
trap 'fail "interrupted; run the same command again to continue from here"' INT TERM

device= tests= oracles= deps=
for argument in "$@"; do
  case $argument in
    --cpu | --cuda) device=${argument#--} ;;
    --tests) tests=1 ;;
    --oracles) tests=1 oracles=1 ;;
    --deps) deps=1 ;;
    *) fail "unknown argument '$argument'; usage: scripts/setup.sh [--cpu|--cuda] [--tests|--oracles|--deps]" ;;
  esac
done

packages=(g++ python3 python3-venv git ca-certificates libyaml-cpp-dev libcli11-dev libspdlog-dev libfmt-dev
  nlohmann-json3-dev libxxhash-dev zlib1g-dev libisal-dev libzstd-dev libpcre2-dev libutf8proc-dev libedit-dev libncurses-dev libbsd-dev libprotozero-dev libjs-dygraphs
  libgtest-dev)

# What starts processes of a run in the tests, plays the machines that they run on, and shows completions and manual pages.
[[ ! $tests ]] || packages+=(openmpi-bin iproute2 zsh groff-base)
# What shows pages in the tests; Ubuntu has it as a snap alone.
[[ ! $oracles ]] || grep -q '^ID=ubuntu' /etc/os-release || packages+=(chromium chromium-driver)

check_machine() {
  [[ $(uname -sm) == "Linux x86_64" ]] || fail "this is $(uname -sm), but gpt-train runs on Linux x86_64"
  command -v apt-get >/dev/null ||
    fail "no apt-get: this set-up supports Debian 12 and Ubuntu 22.04 or 24.04; elsewhere install the equivalents of ${packages[*]}, torch 2.11.0 with pip (for CUDA nvidia-cudnn-frontend too), and use cmake -DGPT_TORCH_DIR=.../site-packages/torch"
  [[ ! -L .deps ]] || fail ".deps is a link to $(readlink .deps), and set-up would replace what is there: remove the link first"
  mkdir -p .deps/log .deps/stamps .deps/tmp 2>/dev/null && [[ -w . && -w .deps/stamps ]] ||
    fail "$PWD is not writable by $(id -un): run as its owner, or chown it"
  exec 9>.deps/lock
  flock -n 9 || { say "Another set-up is running here; waiting for it." && flock 9; }
}

# The package of LLVM's OpenMP runtime (cmake/OpenMP.cmake) has LLVM's version in its name. 14 was measured; any will do.
openmp_package() {
  local found
  found=$(apt-cache search --names-only '^libomp5-[0-9]+' | cut -d ' ' -f 1 | sort -V)
  grep -m 1 '^libomp5-14' <<<"$found" || tail -n 1 <<<"$found"
}

install_packages() {
  local missing=() root=() package
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == *" installed" ]] || missing+=("$package")
  done
  compgen -G '/usr/lib/llvm-*/lib/libomp.so.5' >/dev/null || missing+=(libomp5)
  ((${#missing[@]})) || return 0
  local line="apt-get install -y --no-install-recommends ${missing[*]}"
  if (($(id -u))); then
    sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; } ||
      fail "system packages are missing and this user is neither root nor allowed to use sudo; ask an administrator for: apt-get update && $line"
    root=(sudo)
  fi
  apt_get() {
    "${root[@]}" apt-get -o DPkg::Lock::Timeout=600 update </dev/null >.deps/log/apt.log 2>&1 &&
      "${root[@]}" env DEBIAN_FRONTEND=noninteractive ${line/libomp5/$(openmp_package)} -o DPkg::Lock::Timeout=600 </dev/null >>.deps/log/apt.log 2>&1 ||
      fail "apt-get failed: $(grep -E '^(E|Err)' .deps/log/apt.log | tail -n 1); fix that (network, sources, on Ubuntu 'universe') and run again (log: .deps/log/apt.log)"
  }
  report "System packages (${missing[*]})" apt_get
}

check_compiler() {
  local compiler=${CXX:-c++} major
  command -v "$compiler" >/dev/null || fail "no C++ compiler '$compiler': apt-get install g++, or set CXX to one"
  major=$("$compiler" -dumpversion | cut -d. -f1)
  ((major >= 11)) || fail "$compiler is version $major, but C++20 needs g++ 11 or later: install one and set CXX"
}

make_venv() {
  need_space 1 "set-up"
  rm -rf .deps/venv
  /usr/bin/python3 -m venv .deps/venv >.deps/log/venv.log 2>&1 ||
    fail "python3 -m venv failed: $(tail -n 1 .deps/log/venv.log) (log: .deps/log/venv.log)"
}

# Each requirement on a line of its own, those of included files first.
requirements_of() {
  local line
  sed ':join; /\\$/ { N; s/ *\\\n */ /; b join }' "scripts/requirements/$1" | while read -r line; do
    case $line in
      "-r "*) requirements_of "${line#-r }" ;;
      "#"*) ;;
      *) echo "$line" ;;
    esac
  done
}

# usage: install_wheels NAME TITLE GIGABYTES
install_wheels() {
  step_wheels() {
    local requirement
    need_space "$2" "$3"
    # One at a time, so that an interruption costs one download and not all of them.
    while read -r requirement; do
      run_pip "$1" install --no-deps --only-binary=:all: --require-hashes -r <(echo "$requirement")
    done < <(requirements_of "$1.txt")
  }
  step "$1" "$wheel_inputs" "$2" step_wheels "$1" "$3" "$2"
}

# All that the nvidia wheels lack is the names that a toolkit has: lib64, and libraries without a version.
complete_toolkit() {
  local library name
  ln -sfn lib "$wheel_toolkit/lib64"
  for library in "$wheel_toolkit"/lib/lib*.so.*; do
    name=${library##*/}
    ln -sf "$name" "$wheel_toolkit/lib/${name%%.so.*}.so"
  done
}

# From scratch, like cmake --fresh, which would also delete the objects: those whose command is unchanged stay valid.
configure() {
  rm -rf build/CMakeCache.txt build/CMakeFiles/[0-9]*
  .deps/venv/bin/cmake -S . -B build "${cmake_flags[@]}" >.deps/log/configure.log 2>&1 ||
    fail "cmake failed: $(grep -A 3 -m 1 'CMake Error' .deps/log/configure.log | tr -s '\n ' ' ') (log: .deps/log/configure.log)"
}

build() { .deps/venv/bin/cmake --build build --target "$build_target" -j "$(build_jobs)"; }

# Ninja's "[12/198] ..." in a log becomes "10% 20% ...", so that minutes of compiling are not silent.
show_progress() {
  local log=$1 shown=0 percent
  while sleep 2; do
    percent=$(sed -n 's/^\[\([0-9]*\)\/\([0-9]*\)\].*/\1 \2/p' "$log" | tail -n 1 | awk '{ print int(10 * $1 / $2) * 10 }')
    ((${percent:-0} > shown && percent < 100)) || continue
    shown=$percent
    printf '%d%% ... ' "$percent"
  done
}

build_to_log() {
  local log=.deps/log/build.log watcher status=0
  : >"$log"
  show_progress "$log" &
  watcher=$!
  build >"$log" 2>&1 || status=$?
  kill "$watcher" 2>/dev/null && wait "$watcher" 2>/dev/null || true
  ((status == 0)) || {
    say failed
    step_is_open=
    if grep -q '^FAILED' "$log"; then sed -n '/^FAILED/,$p' "$log"; else tail -n 5 "$log"; fi >&2
    fail "the build failed; the compiler's messages are above (log: $log)"
  }
}

check_machine
install_packages
check_compiler

python=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[[ $python =~ ^3\.1[0-4]$ ]] || fail "/usr/bin/python3 is $python, but the torch 2.11.0 wheels are for 3.10 to 3.14"
[[ ! $oracles || $python != 3.10 ]] || fail "--oracles: transformers 5 needs Python 3.11 or later, and /usr/bin/python3 is 3.10"
# A virtual environment contains its own path, and a new one starts empty.
venv_inputs="$PWD python$python"
wheel_inputs="$venv_inputs $(cat scripts/requirements/*.txt)"
wheel_toolkit=.deps/venv/lib/python$python/site-packages/nvidia/cu13

gpus= nvcc=
if [[ $device != cpu ]]; then
  gpus=$(usable_gpus)
  nvcc=$(system_nvcc)
  device=${device:-$([[ $gpus || $nvcc ]] && echo cuda || echo cpu)}
fi

[[ -x .deps/venv/bin/python ]] || rm -f .deps/stamps/*
step venv "$venv_inputs" "Private Python $python in .deps/venv" make_venv
install_wheels tools "Build tools (cmake, ninja)" 1
if [[ $device == cpu ]]; then
  install_wheels cpu "LibTorch 2.11.0 (530 MB to download)" 3
else
  install_wheels cuda "LibTorch 2.11.0 with its CUDA libraries (2.3 GB to download)" 6
fi
if [[ $tests ]]; then
  install_wheels checks "Source checks (clang-format, clang-tidy)" 1
  install_wheels tests "PyTorch 2.11.0 for the tests (up to 2.5 GB to download)" 7
fi
[[ ! $oracles ]] || install_wheels oracles "Programs that read exported models (200 MB to download)" 2

cmake_flags=(-G Ninja "-DCMAKE_MAKE_PROGRAM=$PWD/.deps/venv/bin/ninja" -DCMAKE_BUILD_TYPE=Release)
! command -v ccache >/dev/null || cmake_flags+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
if [[ $device == cuda ]]; then
  if [[ -z $nvcc ]]; then
    install_wheels nvcc "CUDA compiler" 1
    step toolkit "$wheel_inputs" "CUDA toolkit from the wheels" complete_toolkit
    nvcc=$PWD/$wheel_toolkit/bin/nvcc
  fi
  # Without a card, tests compile for one architecture: nothing will run the others.
  architectures=${gpus:-${tests:+90}}
  cmake_flags+=(-DGPT_CUDA=ON "-DCMAKE_CUDA_COMPILER=$nvcc" ${architectures:+"-DCMAKE_CUDA_ARCHITECTURES=$architectures"})
else
  cmake_flags+=(-DGPT_CUDA=OFF)
fi
[[ ! $deps ]] || exit 0
[[ -e build/build.ninja ]] || rm -f .deps/stamps/configure
step configure "$venv_inputs ${CXX:-} ${cmake_flags[*]}" "Configure for ${device^^}" configure
build_target=$([[ $tests ]] && echo all || echo programs)
if [[ -t 1 ]]; then  # a terminal gets ninja's progress line
  build || fail "the build failed; the compiler's messages are above"
else
  report "Build with $(build_jobs) jobs" build_to_log
fi
say "Set-up is complete: the ${device^^} programs are in build/bin/."
