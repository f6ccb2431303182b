#!/usr/bin/env bash
# Whether runs end with training.max_time: one for each number of seconds, with the model that is chosen for the text, timed from outside. A run may
# miss its time by a hundredth of it, two seconds, or one update, whichever is the longest. Prints each run, and fails where one misses its time.
#
# usage: scripts/try_max_time.sh TEXT [SECONDS...]     as long as their sum; by default 20 of 30 seconds to 10 minutes, 66 minutes in all
# NEIGHBOUR=1: beside a program that computes on all processors for ten seconds and rests for ten
set -euo pipefail
text=$(realpath "${1:?usage: scripts/try_max_time.sh TEXT [SECONDS...]}")
shift
source "$(dirname "$0")/steps.sh"
[[ -x build/bin/gpt-train ]] || fail "build/bin/gpt-train is missing: run ./scripts/quickstart.sh first"
(($#)) || set -- 30 35 41 48 57 66 77 90 106 124 145 170 199 233 272 319 373 437 512 600
folder=$(mktemp -d)
trap 'kill 0 2>/dev/null || true; rm -rf "$folder"' EXIT

# On each processor, in turns with a rest.
disturb() {
  while true; do
    for _ in $(seq "$(nproc)"); do timeout 10 sh -c 'while :; do :; done' & done
    wait
    sleep 10
  done
}
[[ -z ${NEIGHBOUR:-} ]] || disturb 2>/dev/null &

missed=0
printf '%8s %8s %9s %8s %8s\n' seconds took allowed updates decided
for seconds; do
  run=$folder/$seconds
  began=$(date +%s.%N)
  build/bin/gpt-train --data "$text" --max_time "$seconds seconds" --output_dir "$run" --result "$run.json" 2>"$run.log" ||
    fail "$(tail -n 3 "$run.log")"
  took=$(echo "$(date +%s.%N) - $began" | bc)
  python3 -B - "$seconds" "$took" "$run" <<'END' || missed=$((missed + 1))
import json, pathlib, sys
seconds, took, run = float(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3])
result = json.loads(run.with_suffix(".json").read_text())
update = result["seconds"]["updates"] / result["step"]
allowed = max(0.01 * seconds, 2, update)
decisions = len((run / "decisions.jsonl").read_text().splitlines())
print(f"{seconds:8.0f} {took:8.2f} {allowed:9.2f} {result['step']:8d} {decisions:8d}")
sys.exit(abs(took - seconds) > allowed)
END
done
((missed == 0)) || fail "$missed of $# runs missed their time"
echo "all of $# runs ended in time"
