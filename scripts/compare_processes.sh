#!/usr/bin/env bash
# What it costs that processes speak to each other: on one CPU, two processes of one thread each compute a run ("together"); two runs of one
# thread and half the sequences each go on beside each other ("apart", the same without an exchange); and one process computes the run with
# two threads ("one"). They alternate, for updates of several sizes. Prints the median tokens/s, their ratios, and how long a step's
# processes wait for each other.
# usage: scripts/compare_processes.sh FILE [gpt-train flags...]
# MODEL (nanogpt_cpu) names a file in configs, UPDATES ("2x2 12x2 12x8 12x32") sequences in a micro-batch x micro-batches in an update, ROUNDS
# (3) how often each is run, SECONDS_EACH (6) how long about.
set -euo pipefail
text=$(realpath "${1:?usage: scripts/compare_processes.sh FILE [gpt-train flags...]}"); shift
source "$(dirname "$0")/steps.sh"
train=build/bin/gpt-train model=${MODEL:-nanogpt_cpu} rounds=${ROUNDS:-3}
[[ -x $train ]] || fail "$train is missing: run ./scripts/quickstart.sh first"
(($(nproc) >= 2)) || fail "two processes need two cores"
python=$(python_with_torch)
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT

# usage: start NAME STEPS FLAGS...
start() {
  $train --config "configs/$model.yaml" --data.text "$text" --tokenizer char --device cpu --max_steps "$2" --warmup_steps 1 --log_interval 10 \
    --eval_interval 0 --checkpoint_interval 0 --sample_interval 0 "${flags[@]}" "${@:3}" --output_dir "$out/$1" --restart >"$out/$1.log" 2>&1 ||
    { cat "$out/$1.log" >&2; exit 1; }
}
flags=("$@")

# usage: speed NAME...   the sum of their median tokens/s, and the median time for which processes wait, in ms
speed() {
  "$python" - "${@/#/$out/}" <<'END'
import json, statistics, sys
speeds, waits = [], []
for folder in sys.argv[1:]:
    records = [json.loads(line) for line in open(f"{folder}/metrics.jsonl")]
    settled = [r for r in records if "step_ms" in r and r["step"] > 10]
    speeds.append(statistics.median(r["tokens_per_second"] for r in settled))
    waits += [statistics.median(r["wait_ms"]) for r in settled if "wait_ms" in r]
print(sum(speeds), statistics.median(waits) if waits else 0)
END
}

printf '%-8s %-9s %10s %10s %10s %9s %9s %9s\n' update tokens together apart one "of apart" "of one" wait
for update in ${UPDATES:-2x2 12x2 12x8 12x32}; do
  batch=${update%x*} micro=${update#*x} results=$out/results
  : >"$results"
  start probe 30 --batch_size "$batch" --gradient_accumulation_steps "$micro" --threads 2
  read -r probed _ < <(speed probe)
  block=$(sed -n 's/^ *block_size: *\([0-9]*\).*/\1/p' "$out/probe/effective_config.yaml")
  tokens=$((batch * micro * block))
  steps=$("$python" -c "print(max(40, int(${SECONDS_EACH:-6} * $probed / $tokens) // 10 * 10))")
  for ((round = 0; round < rounds; ++round)); do
    size=(--batch_size "$batch" --gradient_accumulation_steps "$micro") half=(--batch_size "$batch" --gradient_accumulation_steps $((micro / 2)))
    start together "$steps" "${size[@]}" --threads 1 --processes 2
    start left "$steps" "${half[@]}" --threads 1 & left=$!
    start right "$steps" "${half[@]}" --threads 1
    wait $left
    start one "$steps" "${size[@]}" --threads 2
    echo "$(speed together) $(speed left right) $(speed one)" >>"$results"
  done
  "$python" - "$results" "$update" "$tokens" <<'END'
import statistics, sys
rows = [[float(x) for x in line.split()] for line in open(sys.argv[1])]
together, wait, apart, _, one, _ = (statistics.median(column) for column in zip(*rows))
print(f"{sys.argv[2]:8} {sys.argv[3]:9} {together:10,.0f} {apart:10,.0f} {one:10,.0f} {together / apart:9.3f} {together / one:9.3f} {wait:6.2f} ms")
END
done
grep -h '^Model: ' "$out/together.log"
