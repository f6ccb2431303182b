#!/usr/bin/env python3
"""The parts of compare_tuning.sh that are Python: conversations, the rows that gpt-train learns, and the same training by TRL."""

import argparse
import bisect
import json
import pathlib
import random
import re
import resource
import statistics
import time

from pytorch_baseline import mix64, permuted

ANSWER_BEGINS = "<|im_start|>assistant\n"


def write(arguments):
    """Questions and answers cut out of a text; the lengths are log-normal, an answer has some three quarters of the words."""
    chance = random.Random(1)
    words = [line.split() for line in arguments.text.read_text().split("\n\n")]
    words = [word for lines in words for word in lines]

    def some(median, spread):
        count = max(3, round(median * chance.lognormvariate(0, spread)))
        first = chance.randrange(len(words) - count)
        return " ".join(words[first:first + count])

    with arguments.chats.open("w") as file:
        for _ in range(arguments.count):
            messages = [{"role": "user", "content": some(arguments.words * 0.25, 0.8)},
                        {"role": "assistant", "content": some(arguments.words * 0.75, 0.7)}]
            file.write(json.dumps({"messages": messages}) + "\n")


# The order of gpt-train's rows, from src/data/packed_rows.
def packed(lengths, length):
    """Best fit, the longest first: for each row the places of its conversations in that order."""
    rows, left = [], []  # left: (positions, how early the row got them, row), so that of two alike the later one is found
    for place, positions in enumerate(lengths):
        at = bisect.bisect_left(left, (positions, -1))
        if at == len(left):
            rows.append([])
            row, free = len(rows) - 1, length
        else:
            free = left[at][0]
            at = bisect.bisect_left(left, (free + 1, -1)) - 1
            row = left.pop(at)[2]
        rows[row].append(place)
        if free > positions:
            bisect.insort(left, (free - positions, place, row))
    return rows


def rows_in_order(conversations, length, seed=1337, epoch=0):
    """What gpt-train learns in one row after another: lists of (ids, labels)."""
    kept = sorted(((ids[:length + 1], labels[:length + 1]) for ids, labels in conversations), key=lambda one: -len(one[0]))
    kept = [one for one in kept if any(label != -100 for label in one[1][1:])]
    rows = packed([len(ids) - 1 for ids, _ in kept], length)
    key = mix64(mix64(mix64(seed * 4 + 2)) + epoch)
    alike = {}
    for place, (ids, _) in enumerate(kept):
        alike.setdefault(len(ids) - 1, []).append(place)
    ordered = []
    for turn in range(len(rows)):
        row = []
        for place in rows[permuted(turn, len(rows), key)]:
            positions = len(kept[place][0]) - 1
            same = alike[positions]
            row.append(kept[same[permuted(place - same[0], len(same), mix64(key + positions))]])
        ordered.append(row)
    return ordered


def tokenizer_of(model):
    """By its tokenizer.json, as transformers' AutoTokenizer would split digits otherwise."""
    import transformers
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"))
    numbers = json.loads((model / "config.json").read_text())
    begin, end, unused = tokenizer.convert_ids_to_tokens([numbers["bos_token_id"], numbers["eos_token_id"], 0])
    tokenizer.add_special_tokens({"bos_token": begin, "eos_token": end, "pad_token": unused})
    tokenizer.chat_template = (model / "chat_template.jinja").read_text()
    return tokenizer


def tokenized(tokenizer, chats):
    """(ids, labels) of each conversation; what counts is the answer with the token that ends it."""
    result = []
    for line in chats.read_text().splitlines():
        messages = json.loads(line)["messages"]
        before = tokenizer.apply_chat_template(messages[:-1], tokenize=True, add_generation_prompt=True, return_dict=False)
        ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
        assert ids[:len(before)] == before and ids[-2] == tokenizer.eos_token_id, "a template whose answers begin and end elsewhere"
        result.append((ids, [-100] * len(before) + ids[len(before):-1] + [-100]))
    return result


def trainer_of(arguments, dataset, **options):
    """TRL's, on a CPU, which keeps the loss and the time of each update."""
    import torch
    import transformers
    import trl
    transformers.logging.set_verbosity_error()

    class Recorded(trl.SFTTrainer):
        seconds, parts = [], []

        def compute_loss(self, *words, **named):
            loss = super().compute_loss(*words, **named)
            self.parts.append(float(loss.detach()))
            return loss

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.began = time.perf_counter()

        def on_step_end(self, *_, **__):
            Recorded.seconds.append(time.perf_counter() - self.began)

    model = str(arguments.model)
    if arguments.adapter:
        import peft
        base = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        model = peft.PeftModel.from_pretrained(base, str(arguments.adapter), is_trainable=True)
    torch.manual_seed(1)
    config = trl.SFTConfig(output_dir=str(arguments.results / "trl"), use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True,
                           logging_steps=1000, max_steps=arguments.steps, dataset_num_proc=1, **options)
    trainer = Recorded(model=model, args=config, train_dataset=dataset, processing_class=tokenizer_of(arguments.model),
                       callbacks=[Clock()])
    return trainer


def losses(arguments):
    """200 updates on the rows of gpt-train, two of them in turn for each update, beside its own losses."""
    import datasets
    import torch
    torch.set_num_threads(arguments.threads)
    rows = rows_in_order(tokenized(tokenizer_of(arguments.model), arguments.chats), arguments.length)
    assert len(rows) >= 2 * arguments.steps, f"{len(rows)} rows are too few"
    columns = {"input_ids": [[i for ids, _ in row for i in ids] for row in rows], "labels": [[i for _, labels in row for i in labels] for row in rows],
               "seq_lengths": [[len(ids) for ids, _ in row] for row in rows]}
    trainer = trainer_of(arguments, datasets.Dataset.from_dict(columns), bf16=False, gradient_checkpointing=False, max_length=None, padding_free=True,
                         per_device_train_batch_size=1, gradient_accumulation_steps=2, learning_rate=arguments.rate, lr_scheduler_type="cosine",
                         warmup_steps=0, weight_decay=0.1, adam_beta1=0.9, adam_beta2=0.99, adam_epsilon=1e-8, max_grad_norm=1.0,
                         train_sampling_strategy="sequential")
    trainer.train()
    if arguments.adapter:
        trainer.model.save_pretrained(arguments.results / f"theirs-{arguments.threads}")
    theirs = [sum(trainer.parts[i:i + 2]) for i in range(0, len(trainer.parts), 2)]
    ours = [record["loss"] for record in metrics_of(arguments.metrics) if "loss" in record]
    assert len(ours) == len(theirs), (len(ours), len(theirs))
    differences = [abs(a - b) for a, b in zip(ours, theirs)]
    (arguments.results / "losses.json").write_text(json.dumps({"ours": ours, "theirs": theirs}))
    print(f"{len(ours)} updates of {len(rows)} rows: the losses differ by {max(differences):.2e} at most (update "
          f"{1 + differences.index(max(differences))}), {statistics.median(differences):.1e} in the median; from {theirs[0]:.4f} to {theirs[-1]:.4f}")


def adapters(arguments):
    """How far our adapter is from theirs after the updates, beside how far theirs are from each other, with one thread and with two."""
    from safetensors.torch import load_file
    folders = (*(arguments.results / name for name in ("ours", "theirs-2", "theirs-1")), arguments.adapter)
    ours, theirs, single, begun = (load_file(folder / "adapter_model.safetensors") for folder in folders)
    assert ours.keys() == theirs.keys() == single.keys(), "the adapters are of other products"

    def distance(one, other):
        return sum((one[name].double() - other[name].double()).square().sum().item() for name in one) ** 0.5

    apart, own, moved = distance(ours, theirs), distance(single, theirs), distance(begun, theirs)
    print(f"the adapters moved by {moved:.3g}; ours is {apart:.2e} from peft's, peft's with one thread {own:.2e} from that with two: "
          + (f"{apart / own:.2f} times as far" if own else "the same bits"))


def metrics_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


# What SFTTrainer is given in each mode; the rest are its defaults.
_PACKED = {"packing": True, "assistant_only_loss": False, "gradient_checkpointing": False}
MODES = {
    "eager": {**_PACKED, "bf16": False},
    "compiled": {**_PACKED, "bf16": False, "torch_compile": True},
    "bfloat16": {**_PACKED, "bf16": True},
    "compiled-bfloat16": {**_PACKED, "bf16": True, "torch_compile": True},
    "defaults": {},
    "defaults-float32": {"bf16": False},
}


def speed(arguments):
    """Updates of one mode: their median time, and how many conversations and tokens they would take in an hour."""
    import datasets
    conversations = tokenized(tokenizer_of(arguments.model), arguments.chats)
    options = MODES[arguments.mode]
    if options.get("packing"):
        options = {**options, "per_device_train_batch_size": arguments.rows}
    columns = {"input_ids": [ids for ids, _ in conversations], "labels": [labels for _, labels in conversations]}
    dataset = datasets.Dataset.from_dict(columns)
    trainer = trainer_of(arguments, dataset, max_length=arguments.length if options.get("packing") else 1024, **options)
    per_row = sum(map(len, columns["input_ids"])) / len(conversations)
    rows_per_conversation = len(trainer.train_dataset) / len(conversations)
    trainer.train()
    seconds = statistics.median(trainer.seconds[arguments.warm:])
    rows = trainer.args.per_device_train_batch_size
    taken = rows / rows_per_conversation / seconds
    say(arguments, f"trl {arguments.mode}", seconds, taken, taken * per_row, own_peak())


def ours(arguments):
    """The same of a run of gpt-train."""
    log = (arguments.metrics.parent / "train.log").read_text()
    conversations, rows = (int(number.replace(",", "")) for number in re.search(r"Conversations: ([\d,]+) in ([\d,]+) sequences", log).groups())
    tokens = sum(len(ids) for ids, _ in tokenized(tokenizer_of(arguments.model), arguments.chats))
    seconds = statistics.median(record["step_ms"] / 1000 for record in metrics_of(arguments.metrics)[arguments.warm:])
    taken = arguments.rows * conversations / rows / seconds
    say(arguments, f"gpt-train {arguments.mode}", seconds, taken, taken * tokens / conversations, metrics_of(arguments.metrics)[-1]["peak_memory_mb"])


def own_peak():
    """Resident memory of this process at its peak, in MB, without the files that it maps."""
    files = int(re.search(r"RssFile:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - files) * 1024 / 1e6


def say(arguments, name, seconds, conversations, tokens, memory):
    with (arguments.results / "speed.jsonl").open("a") as file:
        file.write(json.dumps({"name": name, "round": arguments.round, "seconds": seconds, "conversations": conversations, "tokens": tokens,
                               "memory": memory}) + "\n")
    print(f"round {arguments.round}: {name}: {seconds:.2f} s an update, {tokens:.0f} tokens/s, {3600 * conversations:.0f} conversations an hour, "
          f"{memory:,.0f} MB", flush=True)


def table(arguments):
    """Medians over the rounds, and the medians of ratios to gpt-train in the same round."""
    records = [json.loads(line) for line in (arguments.results / "speed.jsonl").read_text().splitlines()]
    first = {record["round"]: record["conversations"] for record in records if record["name"] == "gpt-train packed"}
    print("| program | tokens/s | conversations an hour | gpt-train packed takes so many times as many | peak memory, MB |\n"
          "| --- | ---: | ---: | ---: | ---: |")
    for name in dict.fromkeys(record["name"] for record in records):
        mine = [record for record in records if record["name"] == name]
        ratio = statistics.median(first[record["round"]] / record["conversations"] for record in mine)
        print(f"| {name} | {statistics.median(r['tokens'] for r in mine):.0f} | {3600 * statistics.median(r['conversations'] for r in mine):.0f} "
              f"| {ratio:.2f} | {statistics.median(r['memory'] for r in mine):,.0f} |")


def padding(arguments):
    """The mean of the longest of each eight conversations, as they come in a file, and of all."""
    lengths = [min(len(ids) - 1, arguments.length) for ids, _ in tokenized(tokenizer_of(arguments.model), arguments.chats)]
    longest = [max(lengths[i:i + 8]) for i in range(0, len(lengths), 8)]
    print(f"{statistics.mean(longest):.0f} {statistics.mean(lengths):.0f} {statistics.median(lengths):.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["write", "losses", "adapters", "speed", "ours", "table", "padding"])
    for name in ("model", "chats", "text", "metrics", "results", "adapter"):
        parser.add_argument(f"--{name}", type=pathlib.Path)
    for name, default in (("count", 600), ("words", 80), ("length", 512), ("steps", 200), ("warm", 1), ("round", 1), ("rows", 2), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--mode", default="packed")
    parser.add_argument("--rate", type=float, default=1e-4)
    arguments = parser.parse_args()
    globals()[arguments.part](arguments)


if __name__ == "__main__":
    main()
