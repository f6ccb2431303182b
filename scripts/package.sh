#!/usr/bin/env bash
# Packages for CPUs, so that people need not compile: an archive that is unpacked anywhere, with LibTorch in it, and a wheel for pip,
# which uses the torch of the Python that it is installed in. Both hold all programs, the default corpus, GPT-2's vocabulary, the
# configurations, completions, and the licences of all that is linked. The same build always gives the same bytes.
#
# usage: scripts/package.sh [archive|wheel|all] [--build DIR]     (default: all)
#   --build DIR  take the programs of a build that was configured with -DGPT_RELOCATABLE=ON -DGPT_CUDA=OFF; without it this script
#                builds them in build-package, which takes about as long as the set-up's build
# They are written to DIR/packages.
set -euo pipefail
source "$(dirname "$0")/steps.sh"
source scripts/machine.sh

usage="usage: scripts/package.sh [archive|wheel|all] [--build DIR]"
build= kinds=(archive wheel)
while (($#)); do
  case $1 in
    archive | wheel) kinds=("$1") ;;
    all) ;;
    --build)
      shift && build=$(cd "$OLDPWD" && realpath -e -- "${1:-}" 2>/dev/null) || fail "--build needs the folder of a build; $usage"
      ;;
    *) fail "unknown argument '$1'; $usage" ;;
  esac
  shift
done

make_build() {
  build=$PWD/build-package
  nice .deps/venv/bin/cmake -S . -B "$build" -G Ninja "-DCMAKE_MAKE_PROGRAM=$PWD/.deps/venv/bin/ninja" -DCMAKE_BUILD_TYPE=Release \
    -DGPT_RELOCATABLE=ON -DGPT_CUDA=OFF -DGPT_TESTS=OFF >.deps/log/package.log 2>&1 &&
    nice .deps/venv/bin/cmake --build "$build" --target programs -j "$(build_jobs)" >>.deps/log/package.log 2>&1 ||
    fail "the build failed: $(grep -m 1 -E 'CMake Error|error:|FAILED' .deps/log/package.log) (log: .deps/log/package.log)"
}

is_set() { grep -q "^$1:BOOL=$2$" "$build/CMakeCache.txt"; }

if [[ ! $build ]]; then
  scripts/setup.sh --cpu --deps
  scripts/get_data.sh
  report "Build for packages, in build-package" make_build
elif ! [[ -f $build/CMakeCache.txt ]] || ! is_set GPT_RELOCATABLE ON || ! is_set GPT_CUDA OFF; then
  fail "$build is no build for packages: configure it with -DGPT_RELOCATABLE=ON -DGPT_CUDA=OFF, or leave out --build"
fi

tree=$build/tree
rm -rf "$tree"
.deps/venv/bin/cmake --install "$build" --prefix "$tree" --strip >"$build/install.log" 2>&1 ||
  fail "cmake --install failed: $(grep -A 2 -m 1 'CMake Error' "$build/install.log" | tr -s '\n ' ' ') (log: $build/install.log)"
version=$(sed -n 's/^#define GPT_VERSION "\(.*\)"$/\1/p' "$build/generated/build_info.h")
[[ $version != *.0 ]] ||
  warn "the version is $version, because the number of commits is not known here (git fetch --unshallow): pip takes no such wheel for newer than another"
seconds=$(git log -1 --format=%ct 2>/dev/null || say 315532800)  # outside a checkout the oldest time that a wheel can say: 1980
for kind in "${kinds[@]}"; do
  say "Packing the $kind:"
  .deps/venv/bin/python -B scripts/package.py "$kind" "$tree" "$build/packages" "$version" "$seconds"
done
