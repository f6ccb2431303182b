#!/usr/bin/env bash
# gpt-serve beside the programs that it is made for: openai, langchain-openai, LiteLLM and llm as its clients, for texts and for chats; the
# requests that Open WebUI sends; GuideLLM, which measures it; and lm_eval, whose scores and answers through the server must be those of
# transformers on the exported model, without and with a chat template. Then 64 clients that do not read, and 100 that do, for ten seconds
# each, in which the memory must stay the same. Trains a small model first. Takes some minutes, and the network for the packages.
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
  "$python" -m pip install --quiet langchain-openai==1.7.4 litellm==1.110.2 llm==0.36 guidellm==0.8.1 \
    'lm_eval[api]==0.4.13' transformers accelerate
}
[[ -x $python ]] || report "Packages in .deps/try_serve" install_packages

train() {
  build/bin/gpt-train --data.text data/shakespeare.txt --data.tokenizer bpe:500 --model.n_layer 2 --model.n_head 2 --model.n_embd 64 \
    --model.block_size 128 --model.norm layernorm --model.mlp gelu --model.position learned --model.bias true --training.max_steps 100 \
    --training.batch_size 8 --output_dir "$folder/run" --device cpu &>"$folder/train.log" || fail "$(tail -n 1 "$folder/train.log")"
}
report "A small model" train
build/bin/gpt-export --checkpoint "$folder/run" --output "$folder/model" &>"$folder/export.log" || fail "$(tail -n 1 "$folder/export.log")"
cat >"$folder/model/chat_template.jinja" <<'END'
{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}
END

: >"$folder/serve.log"
build/bin/gpt-serve --checkpoint "$folder/model" --device cpu --dtype float32 --port 0 --slots 16 --max-tokens 1000000000 --ignore-tools \
  2>"$folder/serve.log" &
server=$!
until url=$(sed -n 's/^Serving .* at \(http[^ ]*[0-9]\): .*/\1/p' "$folder/serve.log") && [[ $url ]]; do
  kill -0 "$server" 2>/dev/null || fail "$(tail -n 1 "$folder/serve.log")"
  sleep 0.1
done

export LITELLM_LOCAL_MODEL_COST_MAP=True HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_HOME=$folder/cache
evaluate() { # TASK FLAG...
  "$python" -m lm_eval "${@:2}" --tasks "$1" --include_path "$folder/task" --log_samples --batch_size 4 &>"$folder/lm_eval.log" ||
    fail "lm_eval: $(tail -n 3 "$folder/lm_eval.log" | tr '\n' ' ')"
}
export LLM_USER_PATH=$folder/llm
for client in openai langchain litellm llm open-webui; do "$python" -B scripts/try_serve.py "$client" "$url"; done
benchmark() {
  "$python" -m guidellm run --backend "kind=openai_http,target=$url,request_format=/v1/completions" --profile kind=concurrent,streams=4 \
    --constraint kind=max_requests,count=20 --tokenizer "kind=hf_auto,model=$folder/model" \
    --data kind=synthetic_text,prompt_tokens=32,output_tokens=16 --output "kind=json,path=$folder/guidellm.json" \
    --disable-console-interactive &>"$folder/guidellm.log" || fail "guidellm: $(tail -n 1 "$folder/guidellm.log")"
}
report "GuideLLM" benchmark
"$python" -B scripts/try_serve.py guidellm "$folder/guidellm.json"
"$python" -B scripts/try_serve.py write-tasks "$folder/task"
served="model=model,base_url=$url/v1/completions,tokenizer=$folder/model,tokenized_requests=True,max_length=129"
opened="pretrained=$folder/model,dtype=float32,max_length=128"
for template in "" --apply_chat_template; do
  # shellcheck disable=SC2086  # no word where there is no template
  report "lm_eval through the server $template" evaluate own_choices --model local-completions --model_args "$served" \
    --output_path "$folder/by_server$template" $template
  # shellcheck disable=SC2086
  report "lm_eval with transformers $template" evaluate own_choices --model hf --device cpu --model_args "$opened" \
    --output_path "$folder/by_transformers$template" $template
  "$python" -B scripts/try_serve.py compare "$folder/by_server$template" "$folder/by_transformers$template"
done
report "lm_eval with chats" evaluate own_answers --model local-chat-completions --apply_chat_template --output_path "$folder/chats" \
  --model_args "model=model,base_url=$url/v1/chat/completions"
report "lm_eval with transformers" evaluate own_answers --model hf --device cpu --apply_chat_template --output_path "$folder/answers" \
  --model_args "$opened"
"$python" -B scripts/try_serve.py compare-answers "$folder/chats" "$folder/answers"
"$python" -B scripts/try_serve.py load "$url" "$server"
kill "$server"
wait "$server" || [[ $? == 143 ]] || fail "the server has not ended as it should: $(tail -n 1 "$folder/serve.log")"
server=
say "All is as it should be."
