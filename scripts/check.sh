#!/usr/bin/env bash
# What can be said of the source without running it: the direction of includes, between folders and inside them, a launch check after
# every kernel launch, one definition of each type, namespaces that are named after folders, how many headers take the whole
# configuration, the size of files, the syntax of scripts, how comments begin, whether the documents and the picture of the floors
# describe this tree, and whether tables agree with the measured figures; then clang-format and clang-tidy. Prints each problem on a
# line, with its place where it has one, and exits with 1 if there is any.
#
# clang-tidy takes seconds for each file. So it sees only what changed since this branch left origin/main (on main itself: the last
# commit) and what is not committed yet; a changed header is seen through one file that includes it. CUDA files are left out,
# because it does not know nvcc's flags.
#
# usage: scripts/check.sh [--all|--format|--sources]
#   --all      clang-tidy on every file, which takes the time of a build
#   --format   without clang-tidy, as scripts/test.sh does: it can take minutes for a change of many files
#   --sources  neither clang-format nor clang-tidy, so that no set-up is needed
set -euo pipefail
source "$(dirname "$0")/steps.sh"

tools=.deps/venv/bin
scope=changed
case ${1:-} in
  --all | --format | --sources) scope=${1#--} ;;
  "") ;;
  *) fail "unknown argument '$1'; usage: scripts/check.sh [--all|--format|--sources]" ;;
esac

# A folder includes only from the folders after it; those within one pair of quotes do not include each other.
layers=("bin" "bench diagnose serve" "train" "plan" "run" "evaluate" "generate prune" "exchange parallel" "checkpoint" "prepare batches" "chat data model container" "optim" "ops tokenizer distributed" "products" "simd parameters" "board" "device layout" "control" "config report http jinja" "core")
max_lines=500
max_takers=20  # headers outside config/ that name the whole Config
max_records=$((60 * 1024))  # bytes of OPTIMIZATIONS.md
max_changed=60  # files that clang-tidy sees without --all: a few minutes on 2 cores, so that the gate's time stays bounded

check_includes() {
  grep -rnoE '^ *# *include "(gpt/)?[a-z_]+/' src include/gpt | awk -v layers="$(IFS=,; echo "${layers[*]}")" '
    BEGIN {
      count = split(layers, row, ",")
      for (i = 1; i <= count; i++) { n = split(row[i], name, " "); for (j = 1; j <= n; j++) level[name[j]] = i }
    }
    {
      split($0, part, ":"); file = part[1]
      from = file; sub(/^(src|include\/gpt)\//, "", from); sub(/\/.*/, "", from)
      to = $0; sub(/.*"(gpt\/)?/, "", to); sub(/\/.*/, "", to)
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
      to = $3; beside = from; sub(/[^\/]*$/, "", beside)
      if (!sub(/^gpt\//, "", to) && index(to, "/") == 0) to = beside to
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

# A type has one definition: two of one name in one namespace, in files that never meet, would become one when they are linked. Types in an
# unnamed namespace are their file's own. clang-format puts namespaces and types at the beginning of a line.
check_one_definition() {
  find src include tests -name '*.h' -o -name '*.cuh' -o -name '*.cpp' | sort | xargs awk '
    FNR == 1 { depth = 0 }
    /^namespace [^=]*\{/ { space[++depth] = $2 == "{" ? "(" FILENAME ")" : $2; next }
    /^\} *\/\/ namespace/ { if (depth) depth--; next }
    /^(template .*> )?(struct|class|union|enum class|enum struct) [A-Za-z_0-9]+( final)?( : [^;]*)? \{/ {
      name = $0; sub(/^template .*> (struct|class)/, "struct", name); sub(/^(enum )?(struct|class|union) /, "", name); sub(/[^A-Za-z_0-9].*/, "", name)
      full = ""; for (i = 1; i <= depth; i++) full = full space[i] "::"
      full = full name
      if (full in place && place[full] !~ ("^" FILENAME ":")) print FILENAME ":" FNR ": " full " is defined at " place[full] " too: the linker takes one for both"
      else place[full] = FILENAME ":" FNR
    }'
}

# A name says which folder it is from. What all speak of, in core/ and config/, is in gpt alone; products/ and simd/ belong to the operators; and
# functions of one subject may have a namespace of its name. exchange/base_model.cpp defines what checkpoint/ asks for from below, and
# parameters/pointers.h is for operators and products alone.
check_namespaces() {
  find src include/gpt -regex '.*\.\(h\|cpp\|cuh\)' -not -regex '.*/\(core\|config\|products\|simd\|bin\)/.*' -not -name base_model.cpp -not -name pointers.h | sort | xargs -r awk '
    { split(FILENAME, path, "/"); folder = path[1] == "src" ? path[2] : path[3] }
    /^namespace gpt[ :]/ && $2 !~ ("^gpt::" folder "(::|$)") && $2 !~ /^gpt::(byte_alphabet|host|llmc|unicode|utf8|zip)$/ {
      ahead = $2; line = FNR
      if (getline > 0 && $0 !~ /^(class|struct|enum) .*;$/) print FILENAME ":" line ": is in " ahead "; a name in this folder is in gpt::" folder
    }'
}

# Who takes a part of the configuration says what it depends on. The whole is for those who choose, compare or keep all of it.
check_takers() {
  local takers
  mapfile -t takers < <(find src include/gpt -name '*.h' -not -path '*/config/*' | sort | xargs -r awk '{ sub(/\/\/.*/, "") } /(^|[^A-Za-z_0-9])Config([^A-Za-z_0-9]|$)/ { print FILENAME; nextfile }')
  ((${#takers[@]} <= max_takers)) || say "${#takers[@]} headers outside config/ name the whole Config (at most $max_takers); take the struct that is needed, or UpdateConfig: ${takers[*]}"
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

# The layout in src/README.md has an item for every folder, in the order of the layers, with a link to the file to begin with. It names
# only files that exist.
check_layout() {
  local folders folder item name
  folders=$(sed -nE '/^## Layout/,/^## / s/^\* \[([a-z]+)\]\(\1\): .*/\1/p' src/README.md)
  for folder in $folders; do
    [[ -d src/$folder ]] || { say "src/README.md: the layout names $folder, which does not exist" && continue; }
    item=$(awk -v begin="* [$folder](" '/^[*#]/ { is_open = index($0, begin) == 1 } is_open' src/README.md | tr -s '\n ' ' ')
    grep -qE "Begin with \[\`([a-z0-9_.]+)\`\]\((\.\./include/gpt/)?$folder/\1\)" <<<"$item" ||
      say "src/README.md: the layout does not link the file of $folder to begin with"
    for name in $(grep -oE '\]\([^)]+' <<<"$item" | cut -c 3-); do
      [[ -e src/$name ]] || say "src/README.md: the layout links $name, which does not exist"
    done
    for name in $(grep -oE '`[a-z0-9_/]+\.[a-z]+`' <<<"$item" | tr -d '`'); do
      [[ -e src/$folder/$name || -e include/gpt/$folder/$name ]] || say "src/README.md: the layout names $folder/$name, which does not exist"
    done
  done
  comm -13 <(sort <<<"$folders") <(cd src && printf '%s\n' */ | sed 's|/$||' | sort) | sed 's/.*/src\/README.md: the layout lacks the folder &/'
  for folder in $folders; do
    printf '%s\n' "${layers[@]}" | grep -nw "$folder" | cut -d : -f 1
  done | sort -nc 2>/dev/null || say "src/README.md: the folders of the layout are not in the order of includes"
}

# Files that a document of any folder names exist.
check_mentions() {
  grep -rsnoE --include='*.md' '\b(cmake|configs|include|scripts|src|tests)/[a-z0-9_./*-]*[a-z0-9*]' \
    README.md OPTIMIZATIONS.md configs include scripts src tests | while IFS=: read -r file line path; do
    compgen -G "$path" >/dev/null || say "$file:$line: names $path, which does not exist"
  done
}

# Sources that a comment names exist. llama.cpp is a program.
check_named_sources() {
  local known; known=$(find src include tests -name '*.cpp' -o -name '*.cu' | sed 's|.*/||' | sort -u; echo llama.cpp)
  grep -rnoE --include='*.cpp' --include='*.h' --include='*.cu' --include='*.cuh' '//.*\b[a-z0-9_]+\.(cpp|cu)\b' src include tests |
    awk -v known="$known" '
      BEGIN { n = split(known, name, "\n"); for (i = 1; i <= n; i++) is_known[name[i]] = 1 }
      {
        split($0, part, ":"); text = $0
        while (match(text, /[a-z0-9_]+\.(cpp|cu)/)) {
          file = substr(text, RSTART, RLENGTH); next_char = substr(text, RSTART + RLENGTH, 1); text = substr(text, RSTART + RLENGTH)
          if (!(file in is_known) && next_char !~ /[a-z]/) print part[1] ":" part[2] ": names " file ", which does not exist"
        }
      }'
}

# A comment begins with its noun: one that begins with "Of" is understood only after the line below it.
check_comments() {
  grep -rnIE '^[[:space:]]*// Of ' src include tests | cut -d : -f 1,2 | while read -r place; do
    say "$place: the comment begins with \"Of\"; begin it with its noun: \"The size of ...\" rather than \"Of ...\""
  done
}

# OPTIMIZATIONS.md gives the size of a file in lines, right to within a tenth.
check_lines() {
  grep -oE '`(cmake|include|scripts|src)/[^` ]+` \([0-9]+( lines)?[,)]' OPTIMIZATIONS.md | sed -E 's/`([^`]+)` \(([0-9]+).*/\1 \2/' | while read -r path said; do
    local now; now=$(cat $path | wc -l)
    ((10 * (now > said ? now - said : said - now) <= now)) || say "OPTIMIZATIONS.md: $path has $now lines, not $said"
  done
}

# Every record says what it is about, where it is, what it does to memory and loss, and what came of it; a rejected one has no files.
# A record is short enough to be read, and so is the whole.
check_records() {
  awk -v most=25 -v widest=140 '
    function end(i) {
      for (i in parts) if (record && !has[parts[i]] && !(verdict ~ /rejected/ && parts[i] != "Idea")) print "OPTIMIZATIONS.md: " record " has no line \"* " parts[i] ":\""
      if (record && last - start >= most) print "OPTIMIZATIONS.md:" start ": " record " has " last - start + 1 " lines; shorten it (at most " most ")"
      record = ""; verdict = ""; split("", has)
    }
    BEGIN { split("Idea Files Memory Loss Verdict", parts, " ") }
    /^## / { end() }
    /^## OPT-/ { record = $2; start = NR }
    /[^ ]/ { last = NR }
    record && !/^\|/ && length > widest { print "OPTIMIZATIONS.md:" NR ": has " length " columns; break the line (at most " widest ")" }
    /^\* [A-Z][a-z]+/ { word = $2; sub(/[:,]$/, "", word); has[word] = 1 }
    /^\* Verdict:/ { verdict = $0 }
    END { end() }' OPTIMIZATIONS.md
  local size; size=$(wc -c <OPTIMIZATIONS.md)
  ((size <= max_records)) || say "OPTIMIZATIONS.md: has $size bytes; shorten it (at most $max_records)"
}

# The tables of figures are those of tests/figures, with a mark where the code has changed since.
check_figures() { check_by_python scripts/figures.py; }

# The picture of the floors shows the includes as they are.
check_picture() { check_by_python scripts/draw_floors.py; }

# usage: check_by_python SCRIPT
# A bare machine may have no Python before the set-up, which scripts/test.sh follows by another check.
check_by_python() {
  local python=.deps/venv/bin/python
  [[ -x $python ]] || python=$(command -v python3) || return 0
  "$python" -B "$1" --check 2>&1
}

check_format() {
  find src include tests -regex '.*\.\(cpp\|h\|cu\|cuh\)' | xargs -r "$tools/clang-format" --dry-run -Werror 2>&1 | awk -F : -v tool="$tools/clang-format" '
    /clang-format-violations/ { if (!seen[$1]++) print $1 ":" $2 ": is not formatted; this mends it: " tool " -i " $1; next }
    / error: / { print }'
}

# The .cpp through which clang-tidy sees a file: itself, the one of a header's name, or one that includes the header.
unit_of() {
  local unit=${1/#include\/gpt/src} including="include \"(.*/)?${1##*/}\""
  unit=${unit%.*}.cpp
  [[ -e $unit ]] || unit=$({ grep -rlE --include='*.cpp' "$including" src tests; grep -rlE --include='*.h' "$including" src include tests; } | sed -n 1p || true)
  case $unit in
    *.cpp) say "$unit" ;;
    *.h) unit_of "$unit" ;;
  esac
}

changed_units() {
  local head base file
  head=$(git rev-parse HEAD 2>/dev/null) || { warn "this is not a git checkout: what changed is not known, and clang-tidy sees files only with --all" && return; }
  base=$(git merge-base HEAD origin/main 2>/dev/null || say "$head")
  [[ $base != "$head" ]] || base=$(git rev-parse --quiet --verify HEAD^ || say "$head")
  { git diff --name-only --diff-filter=d "$base" && git ls-files --others --exclude-standard; } | while read -r file; do
    [[ ! $file =~ ^(src|include|tests)/.*\.(cpp|h)$ ]] || unit_of "$file"
  done | sort -u
}

all_units() { sed -n "s|^ *\"file\": \"$PWD/\(.*\.cpp\)\",\?$|\1|p" "$commands/compile_commands.json" | sort -u; }

# Where compile_commands.json says how each source is compiled by itself: in build/tidy where the build compiles several as one
# (cmake/CompileTogether.cmake).
commands=build
configure_tidy() {
  local settings
  grep -q '/Unity/' build/compile_commands.json || return 0
  commands=build/tidy
  mapfile -t settings < <(sed -nE 's/^((GPT_CUDA|CMAKE_(BUILD_TYPE|MAKE_PROGRAM|CUDA_COMPILER|CUDA_ARCHITECTURES)):.*)/-D\1/p' build/CMakeCache.txt)
  { "$tools/cmake" -S . -B build/tidy -G Ninja "${settings[@]}" -DGPT_COMPILE_TOGETHER=OFF &&
    "$tools/cmake" --build build/tidy --target gpt_build_info gpt_report_page; } >.deps/log/tidy.log 2>&1 ||
    fail "cannot configure clang-tidy's build (log: .deps/log/tidy.log)"
}

check_tidy() {
  local folder output status=0 lines
  folder=$(mktemp -d)
  trap "rm -r '$folder'" EXIT  # the function runs in a subshell of its own
  # Each process writes to a file of its own, so that their lines do not mix. clang cannot read the headers that GCC precompiled, and
  # reads the text instead.
  printf '%s\n' "$@" | xargs -r -P "$(nproc)" -n 1 sh -c 'folder=$1; shift; "$@" >>"$folder/$$" 2>&1' sh "$folder" \
    "$tools/clang-tidy" -p "$commands" --quiet --extra-arg-before=-Wno-ignored-gch || status=$?
  output=$(find "$folder" -type f -exec cat {} +)
  lines=$(sed -nE "s|^$PWD/||; /(^|: )(warning|error): /p" <<<"$output" | sort -u)
  [[ -z $lines && $status == 0 ]] || say "${lines:-clang-tidy failed: $(tail -n 1 <<<"$output")}"
}

problems=
# usage: check NAME ARGUMENT...   runs check_NAME, which prints a line for each problem
check() {
  local lines
  lines=$("check_$1" "${@:2}" || true)
  problems+=${lines:+$lines$'\n'}
}

# usage: check_units LIST   clang-tidy on the files that the function LIST names
check_units() {
  local list units count
  list=$("$1")
  mapfile -t units < <(printf '%s' "${list:+$list$'\n'}")
  count=${#units[@]}
  [[ $scope == all ]] || units=("${units[@]:0:max_changed}")
  report "clang-tidy on ${#units[@]} of the $count files that ${scope/all/exist}" check tidy "${units[@]}"
}

for name in includes circles launches one_definition namespaces takers sizes scripts layout mentions named_sources comments lines records figures picture; do check "$name"; done
if [[ $scope != sources ]]; then
  if [[ -x $tools/clang-tidy && -e build/compile_commands.json ]]; then
    check format
    [[ $scope == format ]] || { configure_tidy && check_units "${scope}_units"; }
  else
    problems+="clang-format and clang-tidy are missing: run ./scripts/setup.sh --tests, or leave them out with --sources"$'\n'
  fi
fi
[[ -z $problems ]] || { printf '%s' "$problems" && fail "the source checks failed"; }
