#!/usr/bin/env bash
# Source checks that no compiler makes: the direction of includes, between folders and inside them, a launch check after
# every kernel launch, the size of files, the syntax of scripts. Prints each problem, with its place where it has one, and
# exits with 1 if there is any.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

# A folder includes only from the folders after it; those within one pair of quotes do not include each other.
layers=("bin" "diagnose" "train" "generate" "checkpoint" "prepare" "data model" "optim ops tokenizer distributed" "parameters" "device" "config report" "core")
max_lines=500

check_includes() {
  grep -rnoE '^ *# *include "gpt/[a-z_]+/' src include/gpt | awk -v layers="$(IFS=,; echo "${layers[*]}")" '
    BEGIN {
      count = split(layers, row, ",")
      for (i = 1; i <= count; i++) { n = split(row[i], name, " "); for (j = 1; j <= n; j++) level[name[j]] = i }
    }
    {
      split($0, part, ":"); file = part[1]
      from = file; sub(/^(src|include\/gpt)\//, "", from); sub(/\/.*/, "", from)
      to = $0; sub(/.*"gpt\//, "", to); sub(/\/.*/, "", to)
      if (!(from in level) || !(to in level)) print file ":" part[2] ": folder \x27" ((from in level) ? to : from) "\x27 is missing from the order of includes"
      else if (from != to && level[to] <= level[from]) print file ":" part[2] ": \x27" from "\x27 includes \x27" to "\x27, which is not below it"
    }'
}

# Inside a folder too, files include each other one way only. A header and the .cpp of its name are one unit.
check_circles() {
  grep -roE '^ *# *include "[^"]+' src include/gpt | awk -F '[:"]' '
    {
      from = $1; sub(/^(src|include\/gpt)\//, "", from); sub(/\.[a-z]+$/, "", from)
      folder = from; sub(/\/.*/, "", folder)
      to = $3; if (!sub(/^gpt\//, "", to)) to = folder "/" to
      sub(/\.[a-z]+$/, "", to)
      if (index(to, folder "/") == 1) print from, to
    }' | tsort 2>&1 >/dev/null | awk '
    /loop/ { if (circle) print circle; circle = "circle of includes:"; next }
    { circle = circle " " $2 }
    END { if (circle) print circle }'
}

# C10_CUDA_KERNEL_LAUNCH_CHECK() within the three lines after the launch statement.
check_launches() {
  find src tests -name '*.cu' -o -name '*.cuh' | sort | xargs -r awk '
    function report() { if (launch) print file ":" launch ": kernel launch without C10_CUDA_KERNEL_LAUNCH_CHECK()" }
    FNR == 1 { report(); launch = 0; file = FILENAME }
    launch && ended && FNR > ended + 3 { report(); launch = 0 }
    /C10_CUDA_KERNEL_LAUNCH_CHECK\(\)/ { launch = 0 }
    /<<</ { report(); launch = FNR; ended = 0 }
    launch && !ended && /;[ \t]*(\\|\/\/.*)?$/ { ended = FNR }
    END { report() }'
}

check_sizes() {
  find src include tests scripts cmake -regex '.*\.\(cpp\|h\|cu\|cuh\|py\|sh\|cmake\)' | xargs wc -l |
    awk -v most=$max_lines '$2 != "total" && $1 > most { print $2 ":" most + 1 ": has " $1 " lines; split it (at most " most ")" }'
}

check_scripts() {
  local script
  for script in scripts/*.sh .ci/run; do
    bash -n "$script" 2>&1
  done
}

found=$(check_includes; check_circles; check_launches; check_sizes; check_scripts || true)
[[ -z $found ]] || { say "$found" && fail "the source checks failed"; }
