#!/usr/bin/env bash
# gpt-serve beside the programs that it is made for: openai, langchain-openai and LiteLLM as its clients, GuideLLM, which measures it, and
# lm_eval, whose scores through the server must be those of transformers on the exported model. Then 64 clients that do not read, and 100
# that do, for ten seconds each, in which the memory must stay the same. Trains a small model first. Takes some minutes, and the network for
# the packages.
#
# usage: scripts/try_serve.sh [PYTHON]   PYTHON: one that has the packages below; without it they are installed beside the set-up's packages
#                                        into .deps/try_serve
set -euo pipefail
source "$(dirname "$0")/steps.sh"

[[ -x build/bin/gpt-serve ]] || fail "build/bin/gpt-serve is missing: run scripts/setup.sh --tests first"
python=${1:-.deps/try_serve/bin/python}
folder=$(mktemp -d)
server=
finish() {
  [[ -z $server ]] || kill "$server" 2>/dev/null || true
  rm -rf "$folder"
}
trap finish EXIT

install_packages() {
  .deps/venv/bin/python -m venv .deps/try_serve
  echo "$PWD"/.deps/venv/lib/python3.*/site-packages >.deps/try_serve/lib/python3.*/site-packages/set_up.pth
  "$python" -m pip install --quiet openai langchain-openai litellm guidellm==0.8.1 'lm_eval[api]==0.4.13' transformers accelerate
}
[[ -x $python ]] || report "Packages in .deps/try_serve" install_packages

train() {
  build/bin/gpt-train --data.text data/shakespeare.txt --data.tokenizer bpe:500 --model.n_layer 2 --model.n_head 2 --model.n_embd 64 \
    --model.block_size 128 --model.norm layernorm --model.mlp gelu --model.position learned --model.bias true --training.max_steps 100 \
    --training.batch_size 8 --output_dir "$folder/run" --device cpu &>"$folder/train.log" || fail "$(tail -n 1 "$folder/train.log")"
}
report "A small model" train
build/bin/gpt-export --checkpoint "$folder/run" --output "$folder/exported" &>"$folder/export.log" || fail "$(tail -n 1 "$folder/export.log")"

: >"$folder/serve.log"
build/bin/gpt-serve --checkpoint "$folder/run" --device cpu --dtype float32 --port 0 --slots 16 --max-tokens 1000000000 2>"$folder/serve.log" &
server=$!
until url=$(sed -n 's/^Serving .* at \(http[^ ]*[0-9]\): .*/\1/p' "$folder/serve.log") && [[ $url ]]; do
  kill -0 "$server" 2>/dev/null || fail "$(tail -n 1 "$folder/serve.log")"
  sleep 0.1
done

export LITELLM_LOCAL_MODEL_COST_MAP=True HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_HOME=$folder/cache
evaluate() {
  "$python" -m lm_eval "$@" --tasks own --include_path "$folder/task" --log_samples --batch_size 4 &>"$folder/lm_eval.log" ||
    fail "lm_eval: $(tail -n 3 "$folder/lm_eval.log" | tr '\n' ' ')"
}
for client in openai langchain litellm; do "$python" -B scripts/try_serve.py "$client" "$url"; done
benchmark() {
  "$python" -m guidellm run --backend "kind=openai_http,target=$url,request_format=/v1/completions" --profile kind=concurrent,streams=4 \
    --constraint kind=max_requests,count=20 --tokenizer "kind=hf_auto,model=$folder/exported" \
    --data kind=synthetic_text,prompt_tokens=32,output_tokens=16 --output "kind=json,path=$folder/guidellm.json" \
    --disable-console-interactive &>"$folder/guidellm.log" || fail "guidellm: $(tail -n 1 "$folder/guidellm.log")"
}
report "GuideLLM" benchmark
"$python" -B scripts/try_serve.py guidellm "$folder/guidellm.json"
"$python" -B scripts/try_serve.py write-task "$folder/task"
report "lm_eval through the server" evaluate --model local-completions --output_path "$folder/by_server" \
  --model_args "model=run,base_url=$url/v1/completions,tokenizer=$folder/exported,tokenized_requests=True,max_length=129"
report "lm_eval with transformers" evaluate --model hf --output_path "$folder/by_transformers" --device cpu \
  --model_args "pretrained=$folder/exported,dtype=float32,max_length=128"
"$python" -B scripts/try_serve.py compare "$folder/by_server" "$folder/by_transformers"
"$python" -B scripts/try_serve.py load "$url" "$server"
kill "$server"
wait "$server" || [[ $? == 143 ]] || fail "the server has not ended as it should: $(tail -n 1 "$folder/serve.log")"
server=
say "All is as it should be."
