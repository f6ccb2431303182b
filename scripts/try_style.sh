#!/usr/bin/env bash
# Whether a model learns to answer in a style, in ten minutes on two cores: SmolLM2 is tuned on 600 conversations whose answers greet a guest,
# have three sentences and end with a name. Then it is asked 200 questions that were kept apart, over gpt-serve and without chance, before and
# after. Prints how many answers have each mark of the style, and all of them.
#
# usage: scripts/try_style.sh [FOLDER] [gpt-train flags...]     FOLDER: what scripts/smollm2.sh made (smollm2)
# RESULTS (build/style) where the run and the answers are kept, so that what is there is not made again.
set -euo pipefail
model=$(realpath "${1:-smollm2}"); shift || true
source "$(dirname "$0")/steps.sh"

[[ -x build/bin/gpt-serve ]] || fail "build/bin/gpt-serve is missing: run ./scripts/quickstart.sh first"
[[ -r $model/model.safetensors ]] || fail "$model is no model: make one with scripts/smollm2.sh"
results=${RESULTS:-build/style}
mkdir -p "$results"
server=
trap '[[ -z $server ]] || kill "$server" 2>/dev/null || true' EXIT

python3 -B scripts/try_style.py write "$results"

# usage: ask MODEL ANSWERS
ask() {
  : >"$results/serve.log"
  build/bin/gpt-serve --checkpoint "$1" --port 0 --slots 16 --queue 200 2>"$results/serve.log" &
  server=$!
  until url=$(sed -n 's/^Serving .* at \(http[^ ]*[0-9]\): .*/\1/p' "$results/serve.log") && [[ $url ]]; do
    kill -0 "$server" 2>/dev/null || fail "$(tail -n 1 "$results/serve.log")"
    sleep 0.1
  done
  python3 -B scripts/try_style.py ask "$url" "$results/questions.jsonl" "$2"
  kill "$server"
  wait "$server" || true
  server=
}

# 130 updates of 1,024 tokens: ten minutes on two idle cores of a Xeon at 2.5 GHz
build/bin/gpt-train --init_from "$model" --data "$results/chats.jsonl" --sequence_length 256 --batch_size 4 --max_steps 130 --log_interval 10 \
  --eval_interval 0 --sample_interval 0 --output_dir "$results/run" "$@" 2> >(tee "$results/train.log" | grep --line-buffered -E '^(step|✓|error)' >&2)
for name in before after; do
  checkpoint=$model
  [[ $name == before ]] || checkpoint=$results/run
  [[ -r $results/$name.jsonl ]] || report "Answers $name" ask "$checkpoint" "$results/$name.jsonl"
  python3 -B scripts/try_style.py count "$name" "$results/$name.jsonl"
done
