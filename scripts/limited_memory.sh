#!/usr/bin/env bash
# A run on the CPU in a control group that allows it no more memory than LIMIT: what gpt-diagnose predicts, and the peak of the run.
# Without arguments: GPT-2's 124M in 3 GB and its 1558M in 20 GB, which takes an hour on two cores and 10 GB of disk. Needs root.
# usage: scripts/limited_memory.sh [LIMIT gpt-train flags...]     LIMIT in bytes
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${GPT_BIN:-build/bin}
[ -x "$bin/gpt-train" ] || { echo "$bin/gpt-train is missing: run ./scripts/quickstart.sh first" >&2; exit 1; }

memory=/sys/fs/cgroup/memory limit_file=memory.limit_in_bytes  # control groups, version 1
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then memory=/sys/fs/cgroup limit_file=memory.max; fi
group=$memory/gpt-train-$$ out=$(mktemp -d)
mkdir "$group" 2>/dev/null && [ -e "$group/$limit_file" ] ||
  { echo "cannot make a control group with a limit of memory in $memory: needs root, outside a container" >&2; exit 1; }
trap 'rm -rf "$out"; rmdir "$group"' EXIT

measure() {
  local limit=$1; shift
  local flags=(--device cpu --training.log_interval 1 --training.eval_interval 0 --training.checkpoint_interval 0 --output_dir "$out/run" "$@")
  echo "$limit" >"$group/$limit_file"
  local predicted peak
  predicted=$("$bin/gpt-diagnose" --no-probe "${flags[@]}" | sed -n 's/.*memory of the run  *about \([0-9.]* [a-zA-Z]*\) .*/\1/p')
  (echo $BASHPID >"$group/cgroup.procs" && exec "$bin/gpt-train" "${flags[@]}") >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
  peak=$(grep -o '"peak_memory_mb":[0-9.]*' "$out/run/metrics.jsonl" | cut -d: -f2 | sort -n | tail -n 1)
  echo "limit $((limit / 1000000)) MB: predicted $predicted, peak ${peak%.*} MB ($*)"
  rm -rf "$out/run"
}

if (($# > 0)); then
  measure "$@"
  exit
fi
gpt2=(--dataset shakespeare --vocab_size 50257 --dropout 0 --use_amp false --gradient_checkpointing block)
measure 3000000000 --preset gpt2_small "${gpt2[@]}" --max_steps 4 --batch_size 4 --gradient_accumulation_steps 2
measure 20000000000 --preset gpt2_xl "${gpt2[@]}" --max_steps 3 --batch_size 1 --use_8bit true
