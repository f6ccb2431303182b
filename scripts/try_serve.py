#!/usr/bin/env python3
"""The parts of try_serve.sh that are Python: clients, tasks for lm_eval, comparisons of what it finds, and many clients at once."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import time
import urllib.parse

SECONDS = 10  # of each load
QUESTION = [{"role": "user", "content": "ROMEO:"}]


def check(condition, message):
    if not condition:
        sys.exit(f"error: {message}")


def try_openai(url):
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    check(client.models.retrieve(model).id == model, "the model is not found by its name")
    asked = dict(model=model, prompt="ROMEO:", max_tokens=40, seed=5)
    whole = client.completions.create(**asked, logprobs=3)
    check(whole.usage.completion_tokens == 40 and whole.choices[0].finish_reason == "length", whole)
    check(len(whole.choices[0].logprobs.token_logprobs) == 40, whole)
    *pieces, last = client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    check("".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text, "the stream has another text")
    check(last.usage == whole.usage and not last.choices, last)
    check(len(client.completions.create(**asked | {"prompt": ["a", [1, 2]]}, n=2).choices) == 4, "two prompts with two texts are four")
    off = dict(top_k=-1, min_p=0, ignore_eos=False, cache_prompt=True, repetition_penalty=1.0, min_tokens=0, stop_token_ids=[])  # of vLLM and llama.cpp
    check(client.completions.create(**asked, stop=[], best_of=1, extra_body=off).choices[0].text == whole.choices[0].text, "values that mean off change the text")
    for expected, fields in ((openai.BadRequestError, {"temperature": -1}), (openai.NotFoundError, {"model": "gpt-4"})):
        with contextlib.suppress(expected):
            client.completions.create(**asked | fields)
            check(False, f"{fields} was not refused")
    chat_with_openai(client, model)
    print(f"openai {openai.__version__}: whole and streamed texts and chats, logprobs, usage and errors are understood")


def chat_with_openai(client, model):
    import openai

    asked = dict(model=model, messages=QUESTION, max_tokens=20, seed=5)
    whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    choice = whole.choices[0]
    check(choice.message.role == "assistant" and choice.message.content and choice.finish_reason in ("length", "stop"), whole)
    check(len(choice.logprobs.content) == whole.usage.completion_tokens, whole)
    *pieces, last = client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    check("".join(piece.choices[0].delta.content or "" for piece in pieces) == choice.message.content, "the stream has another answer")
    check([piece.choices[0].delta.role for piece in pieces] == ["assistant"] + [None] * (len(pieces) - 1), "the first piece has the role")
    check([piece.choices[0].finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + [choice.finish_reason], "the last one has the reason")
    check(last.usage == whole.usage and not last.choices, last)
    with client.chat.completions.stream(**asked | {"stop": choice.message.content[:1]}) as stream:  # the helper raises where an answer was cut off
        check(stream.get_final_completion().choices[0].finish_reason == "stop", "the answer ends at its stop text")
    with contextlib.suppress(openai.BadRequestError):
        client.chat.completions.create(**asked | {"messages": QUESTION * 200})
        check(False, "more messages than fit were not refused")


def try_langchain(url):
    import importlib.metadata

    import langchain_openai

    model = langchain_openai.OpenAI(model="model", base_url=url + "/v1", api_key="none", max_tokens=20, seed=5)
    whole = model.invoke("ROMEO:")
    check(len(whole) > 0 and "".join(model.stream("ROMEO:")) == whole, "the stream has another text")
    answers = model.generate(["ROMEO:", "JULIET:"], stop=["\n\n\n"])
    check(len(answers.generations) == 2 and answers.llm_output["token_usage"]["completion_tokens"] == 40, answers)
    chat = langchain_openai.ChatOpenAI(model="model", base_url=url + "/v1", api_key="none", max_tokens=20, seed=5)
    said = chat.invoke([("system", "Speak."), ("human", "ROMEO:")])
    check(said.text and said.usage_metadata["output_tokens"] > 0 and said.response_metadata["finish_reason"], said)
    check("".join(piece.text for piece in chat.stream([("system", "Speak."), ("human", "ROMEO:")])) == said.text, "the stream has another answer")
    print(f"langchain-openai {importlib.metadata.version('langchain-openai')}: texts, chats, streams and lists of prompts are understood")


def try_litellm(url):
    import importlib.metadata

    import litellm

    asked = dict(api_base=url + "/v1", api_key="none", prompt="ROMEO:", max_tokens=20, seed=5)
    for provider in ("text-completion-openai", "hosted_vllm"):
        whole = litellm.text_completion(model=f"{provider}/model", **asked).choices[0].text
        stream = litellm.text_completion(model=f"{provider}/model", **asked, stream=True)
        check(len(whole) > 0 and "".join(piece.choices[0].text or "" for piece in stream) == whole, f"{provider}: the stream has another text")
    asked = dict(api_base=url + "/v1", api_key="none", messages=QUESTION, max_tokens=20, seed=5)
    for provider in ("openai", "hosted_vllm"):
        whole = litellm.completion(model=f"{provider}/model", **asked).choices[0].message.content
        stream = litellm.completion(model=f"{provider}/model", **asked, stream=True)
        check(whole and "".join(piece.choices[0].delta.content or "" for piece in stream) == whole, f"{provider}: the stream has another answer")
    print(f"litellm {importlib.metadata.version('litellm')}: texts, chats and streams are understood")


def try_llm(url):
    """https://llm.datasette.io, as a command: a model is a line of its configuration."""
    import importlib.metadata

    folder = pathlib.Path(os.environ["LLM_USER_PATH"])
    folder.mkdir()
    (folder / "extra-openai-models.yaml").write_text(f"- {{model_id: mine, model_name: model, api_base: '{url}/v1'}}\n")

    def llm(*words, said=""):
        command = [sys.executable, "-m", "llm", *words, "-m", "mine", "-o", "max_tokens", "20", "-o", "seed", "5"]
        done = subprocess.run(command, capture_output=True, text=True, input=said)
        check(done.returncode == 0, f"llm: {done.stderr}")
        return done.stdout

    streamed = llm("prompt", "ROMEO:")
    check(streamed.strip() and llm("prompt", "ROMEO:", "--no-stream") == streamed, "the stream has another answer")
    check(streamed.strip() in llm("chat", said="ROMEO:\nJULIET:\nexit\n"), "a chat begins with another answer")
    print(f"llm {importlib.metadata.version('llm')}: answers, streams and chats are understood")


def try_open_webui(url):
    """The requests that Open WebUI 0.12.4 sends, by its source: routers/openai.py, routers/tasks.py and utils/middleware.py."""
    import requests

    headers = {"Content-Type": "application/json", "Authorization": "Bearer ", "X-OpenWebUI-User-Name": "me"}

    def ask(**body):
        answer = requests.post(f"{url}/v1/chat/completions", headers=headers, data=json.dumps({"model": model, **body}), timeout=300)
        check(answer.status_code == 200, answer.text)
        return answer

    model = requests.get(f"{url}/v1/models", headers=headers, timeout=300).json()["data"][0]["id"]
    # Its chats offer the model tools of its own unless "Function Calling" is set to "Legacy".
    parameters = {"type": "object", "properties": {"days_ago": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}}}
    tools = [{"type": "function", "function": {"name": "calculate_timestamp", "description": "A time.", "parameters": parameters}}]
    stream = ask(stream=True, stream_options={"include_usage": True}, messages=QUESTION, tools=tools, temperature=0.7, max_tokens=20, seed=5)
    check(stream.headers["Content-Type"] == "text/event-stream", stream.headers)
    *pieces, done = [line.removeprefix("data: ") for line in stream.text.splitlines() if line]
    pieces = [json.loads(piece) for piece in pieces]
    check(done == "[DONE]" and pieces[-1]["usage"]["total_tokens"] > 0, done)
    answer = "".join(choice["delta"].get("content", "") for piece in pieces for choice in piece["choices"])
    check(answer, pieces)
    dialogue = [*QUESTION, {"role": "assistant", "content": answer}, {"role": "user", "content": [{"type": "text", "text": "Why?"}]}]
    check(ask(stream=False, messages=dialogue, max_tokens=20).json()["choices"][0]["message"]["content"], "no answer")
    title = ask(stream=False, messages=[{"role": "user", "content": "### Task:\nGenerate a title."}], max_completion_tokens=20)  # tags and follow-ups alike
    check("content" in title.json()["choices"][0]["message"], title.text)
    print("Open WebUI's requests: models, chats with tools and usage, and tasks are answered")


def check_guidellm(report):
    requests = json.loads(report.read_text())["benchmarks"][0]["requests"]
    done = requests["successful"]
    check(len(done) == 20 and not requests["errored"], f"{len(done)} requests succeeded and {len(requests['errored'])} did not")
    check({request["output_metrics"]["text_tokens"] for request in done} == {16}, "a text has not as many tokens as were asked for")
    check(all(request["info"]["timings"]["first_token_iteration"] for request in done), "it has not seen the first token")
    print("GuideLLM: all requests succeed, with as many tokens as it asks for")


def write_tasks(folder):
    """Choices and answers, made of the text that the model has learned from."""
    folder.mkdir()
    lines = [line for line in pathlib.Path("data/shakespeare.txt").read_text().splitlines() if len(line) > 30]
    random.seed(1)
    with open(folder / "own.jsonl", "w") as file:
        for _ in range(40):
            question, *choices = random.sample(lines, 5)
            file.write(json.dumps({"question": question, "choices": choices, "answer": random.randrange(4)}) + "\n")
    data = f"""dataset_path: json
dataset_kwargs:
  data_files:
    test: {folder}/own.jsonl
test_split: test
doc_to_text: "{{{{question}}}}"
"""
    (folder / "own_choices.yaml").write_text(f"""task: own_choices
{data}output_type: multiple_choice
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list:
  - metric: acc
  - metric: acc_norm
""")
    (folder / "own_answers.yaml").write_text(f"""task: own_answers
{data}output_type: generate_until
doc_to_target: "{{{{choices[0]}}}}"
generation_kwargs:
  until: ["###"]
  max_gen_toks: 20
  do_sample: false
  temperature: 0
metric_list:
  - metric: exact_match
""")


def scores_in(folder):
    """(document, choice) -> (log likelihood, whether it is what a greedy text would be)"""
    file, = folder.rglob("samples_own_choices_*.jsonl")
    scores = {}
    for line in file.read_text().splitlines():
        sample = json.loads(line)
        for index, (score,) in enumerate(sample["resps"]):
            scores[sample["doc_id"], index] = float(score[0]), str(score[1]) == "True"
    return scores


def compare(ours, theirs):
    ours, theirs = scores_in(ours), scores_in(theirs)
    check(ours.keys() == theirs.keys() and len(ours) == 160, f"{len(ours)} scores beside {len(theirs)}")
    difference = max(abs(ours[key][0] - theirs[key][0]) for key in ours)
    largest = max(abs(score) for score, _ in theirs.values())
    # Sums of some 20 logprobs of float32, each with a rounding error of some 1e-6.
    check(difference < 2e-3, f"scores differ by {difference}")
    check(all(ours[key][1] == theirs[key][1] for key in ours), "greedy is not the same")
    print(f"lm_eval: {len(ours)} log likelihoods of up to {largest:.0f} in size differ by at most {difference:.1e}")


def compare_answers(ours, theirs):
    def answers_in(folder):
        file, = folder.rglob("samples_own_answers_*.jsonl")
        samples = map(json.loads, file.read_text().splitlines())
        return {sample["doc_id"]: sample["resps"][0][0] for sample in samples}

    ours, theirs = answers_in(ours), answers_in(theirs)
    different = [(ours[i], theirs[i]) for i in theirs if ours[i] != theirs[i]]
    check(ours.keys() == theirs.keys() and len(ours) == 40, f"{len(ours)} answers beside {len(theirs)}")
    check(not different, f"{len(different)} answers differ, the first: {different[:1]}")
    print(f"lm_eval: {len(ours)} greedy answers of chats are those of transformers")


def resident_kilobytes(process):
    for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise SystemExit("error: the server has ended")


class Clients:
    def __init__(self, url):
        address = urllib.parse.urlsplit(url)
        self.host, self.port = address.hostname, address.port

    def complete(self, **fields):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=300)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", json.dumps(fields))
            answer = connection.getresponse()
            return answer.status, answer.read()

    def who_do_not_read(self, count):
        """Streams without an end, of which nothing is read."""
        body = json.dumps({"prompt": "a", "max_tokens": 1_000_000_000, "stream": True}).encode()
        connections = []
        for _ in range(count):
            connections.append(socket.create_connection((self.host, self.port)))
            connections[-1].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        return connections

    def ask_until(self, end, seed):
        answers = []
        while time.monotonic() < end:
            answers.append(self.complete(prompt="ROMEO:", max_tokens=10, seed=seed)[0])
        return answers


def load(url, process):
    clients = Clients(url)
    clients.complete(prompt="a", max_tokens=200)
    before = resident_kilobytes(process)
    slow = clients.who_do_not_read(64)
    time.sleep(SECONDS)
    for connection in slow:
        connection.close()
    status, _ = clients.complete(prompt="a")
    check(status == 200, f"after slow clients: status {status}")
    after_slow = resident_kilobytes(process)
    memory = []
    for _ in range(2):
        end = time.monotonic() + SECONDS / 2
        with concurrent.futures.ThreadPoolExecutor(100) as pool:
            answers = [status for some in pool.map(lambda seed: clients.ask_until(end, seed), range(100)) for status in some]
        counts = {status: answers.count(status) for status in sorted(set(answers))}
        check(set(counts) <= {200, 429}, f"answers: {counts}")
        memory.append(resident_kilobytes(process))
    print(f"load: {memory[0] / 1e3:.0f} MB and {memory[1] / 1e3:.0f} MB after 100 clients for {SECONDS / 2:.0f} s each "
          f"({before / 1e3:.0f} MB before, {after_slow / 1e3:.0f} MB after 64 that did not read); answers {counts}")
    check(memory[1] - memory[0] < 20_000, "the memory grows")


def main():
    command, *words = sys.argv[1:]
    if command == "openai":
        try_openai(*words)
    elif command == "langchain":
        try_langchain(*words)
    elif command == "litellm":
        try_litellm(*words)
    elif command == "guidellm":
        check_guidellm(pathlib.Path(*words))
    elif command == "llm":
        try_llm(*words)
    elif command == "open-webui":
        try_open_webui(*words)
    elif command == "write-tasks":
        write_tasks(pathlib.Path(*words))
    elif command == "compare-answers":
        compare_answers(*map(pathlib.Path, words))
    elif command == "compare":
        compare(*map(pathlib.Path, words))
    elif command == "load":
        load(words[0], int(words[1]))


if __name__ == "__main__":
    main()
