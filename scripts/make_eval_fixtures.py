#!/usr/bin/env python3
"""Writes tests/fixtures/eval: a small model in Hugging Face's form, tasks of invented content, and what lm-evaluation-harness makes of them.

    pip install lm_eval==0.4.13 transformers==5.23.0 datasets==5.2.0 accelerate==1.15.0
    python scripts/make_eval_fixtures.py                 # needs the built programs; only the tasks and what is expected: --keep-model

The tasks have what rules are made for: characters beyond ASCII, capitals in ctx_b, [title] and other brackets, white space at the end of a
context, contexts that are longer than the window, a single word without a context, equal answers, answers that are empty once they are
cleaned, labels as numbers and as texts. strided.json is Hugging Face's loop for the perplexity of a long text, written out.
"""

import argparse
import json
import math
import os
import pathlib
import random
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "fixtures" / "eval"
BLOCK = 64

ANIMALS = ["fox", "dog", "heron", "Ägyptische Gans", "naïve cat", "café owner's mule", "狐", "otter 🦦"]
VERBS = ["jumps over", "walks around", "looks at", "paints", "is afraid of", "follows"]
THINGS = ["the fence", "a river", "the old bridge", "its shadow", "two stones", "the façade", "Москва", "a ladder"]
ENDINGS = ["and goes home.", "and sings a song.", "because it rains.", "until the evening.", "without a word."]


def sentence(draw):
    return f"The {draw.choice(ANIMALS)} {draw.choice(VERBS)} {draw.choice(THINGS)} {draw.choice(ENDINGS)}"


def paragraph(draw, sentences):
    return " ".join(sentence(draw) for _ in range(sentences))


def training_text():
    draw = random.Random(1)
    lines = []
    for _ in range(3000):
        lines.append(sentence(draw))
        if draw.random() < 0.3:
            lines.append(f"Question: What does the {draw.choice(ANIMALS)} do?\nAnswer: It {draw.choice(VERBS)} {draw.choice(THINGS)}.")
    return "\n".join(lines) + "\n"


def hellaswag(draw):
    for i in range(36):
        ctx_b = draw.choice(["", "the dog", "THE FOX and Élan ÉTÉ", "élan Ωmega ÀÉ", "Then  it"])
        line = {"ind": i, "activity_label": draw.choice(["Walking the dog", "Painting  a fence [misc]", "Café"]),
                "ctx_a": paragraph(draw, draw.choice([1, 1, 2, 9])) + draw.choice(["", " ", " [title] How to begin [step] Then"]),
                "ctx_b": ctx_b, "endings": [], "label": draw.randrange(4)}
        line["endings"] = [f"{draw.choice(VERBS)} {draw.choice(THINGS)} {draw.choice(ENDINGS)}" + draw.choice(["", " [substeps] Rest."])
                           for _ in range(4)]
        if i == 3:
            line["endings"] = [line["endings"][0]] * 4  # a tie
        if i == 5:
            line["endings"][2] = "[header]"  # nothing is left
        if i % 2:
            line["label"] = str(line["label"])
        yield line


def arc(draw):
    for i in range(30):
        names = draw.choice([list("ABCD"), list("1234"), list("ABC")])
        texts = [f"It {draw.choice(VERBS)} {draw.choice(THINGS)}" + draw.choice(["", ".", "  "]) for _ in names]
        if i == 4:
            texts[1] = texts[0]
        question = f"What does the {draw.choice(ANIMALS)} do?" if i % 7 else paragraph(draw, 8) + " What now? "
        yield {"id": f"q{i}", "question": question, "choices": {"text": texts, "label": names}, "answerKey": draw.choice(names)}


def piqa(draw):
    for i in range(24):
        yield {"goal": f"How do you follow the {draw.choice(ANIMALS)}?" + (paragraph(draw, 7) if i == 2 else ""),
               "sol1": sentence(draw), "sol2": sentence(draw) if i != 6 else "Don’t.", "label": draw.randrange(2)}


def lambada(draw):
    for i in range(36):
        text = paragraph(draw, draw.choice([1, 2, 8]))
        if i % 3 == 0:
            text = text[:-1]  # the word without its full stop
        if i == 5:
            text = "Word"
        if i in (7, 8):
            text = text.rsplit(" ", 1)[0] + ("  " if i == 7 else "\n ") + text.rsplit(" ", 1)[1]
        yield {"text": text, "domain": None}


def documents(draw):
    for sentences in (1, 3, 30, 4, 12, 40):
        yield {"text": paragraph(draw, sentences).replace(". ", draw.choice([".\n", ". ", ".  "]))}
    yield {"text": "語"}


def wikitext(draw):
    for sentences in (2, 5, 14):
        text = " \n = The Fox = \n \n " + paragraph(draw, sentences).replace(".", " .") + ' It has 1 @,@ 000 @-@ year @.@ old " friends " ; '
        yield {"page": text + "( see [ it ] ) , the dogs ' { place } \n = = Life = = \n N 's 20 ° \n"}


def write_lines(name, lines):
    with open(FOLDER / f"{name}.jsonl", "w") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def train_model():
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder, "text.txt")
        text.write_text(training_text())
        flags = {"data.text": text, "output_dir": f"{folder}/run", "data.tokenizer": "bpe:400", "model.n_layer": 2, "model.n_head": 2,
                 "model.n_embd": 16, "model.block_size": BLOCK, "model.norm": "layernorm", "model.mlp": "gelu", "model.position": "learned",
                 "model.bias": "true", "model.dropout": 0, "training.batch_size": 16, "training.max_steps": 400, "training.learning_rate": 1e-2,
                 "training.use_amp": "false", "device": "cpu", "threads": 1}
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
        subprocess.run([ROOT / "build/bin/gpt-train", *words], check=True, env=environment)
        subprocess.run([ROOT / "build/bin/gpt-export", "--checkpoint", f"{folder}/run", "--output", FOLDER / "model", "--dtype", "bfloat16"],
                       check=True)


def task_configs():
    from lm_eval.tasks.hellaswag.utils import process_docs
    from lm_eval.tasks.wikitext.preprocess_wikitext import process_results, wikitext_detokenizer

    def metrics(*names, aggregation="mean"):
        return [{"metric": name, "aggregation": aggregation, "higher_is_better": True} for name in names]

    def task(name, **config):
        return {"task": f"our_{name}", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(FOLDER / f"{name}.jsonl")}},
                "test_split": "test", **config}

    choices = {"output_type": "multiple_choice", "metric_list": metrics("acc", "acc_norm", "acc_bytes")}
    rolling = {"output_type": "loglikelihood_rolling", "doc_to_text": "",
               "metric_list": [{"metric": name} for name in ("word_perplexity", "byte_perplexity", "bits_per_byte")]}
    return {
        "hellaswag": task("hellaswag", process_docs=process_docs, doc_to_text="{{query}}", doc_to_target="{{label}}", doc_to_choice="choices",
                          **choices),
        "arc": task("arc", doc_to_text="Question: {{question}}\nAnswer:", doc_to_target="{{choices.label.index(answerKey)}}",
                    doc_to_choice="{{choices.text}}", **choices),
        "piqa": task("piqa", doc_to_text="Question: {{goal}}\nAnswer:", doc_to_target="label", doc_to_choice="{{[sol1, sol2]}}", **choices),
        "lambada": task("lambada", output_type="loglikelihood", doc_to_text="{{text.split(' ')[:-1]|join(' ')}}",
                        doc_to_target="{{' '+text.split(' ')[-1]}}",
                        metric_list=metrics("perplexity", aggregation="perplexity") + metrics("acc")),
        "documents": task("documents", doc_to_target="{{text}}", **rolling),
        "wikitext": task("wikitext", doc_to_target=wikitext_detokenizer, process_results=process_results, **rolling),
    }


def run_harness():
    import lm_eval
    configs = task_configs()
    done = lm_eval.simple_evaluate(model="hf", model_args=f"pretrained={FOLDER / 'model'},dtype=float32", tasks=list(configs.values()),
                                   device="cpu", batch_size=1, bootstrap_iters=2, log_samples=True)
    expected = {}
    for name, config in configs.items():
        values = {key.removesuffix(",none"): value for key, value in done["results"][config["task"]].items()
                  if key.endswith(",none") and isinstance(value, (int, float)) and key != "perplexity_stderr,none"}
        samples = sorted(done["samples"][config["task"]], key=lambda sample: sample["doc_id"])
        values["log_likelihoods"] = [[response[0][0] if isinstance(response[0], (list, tuple)) else response[0]
                                      for response in sample["resps"]] for sample in samples]
        expected[name] = values
    return expected


def strided(window, stride):
    """The loop of Hugging Face's guide to perplexity. Its window has one more token than ours, as the last one is never seen."""
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER / "model", dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER / "model")
    text = paragraph(random.Random(9), 40)
    while (len(tokenizer(text).input_ids) - window) % stride:  # else its last window has less context than it could have
        text = text[:-1]
    ids = torch.tensor([[tokenizer.bos_token_id] + tokenizer(text).input_ids])
    total, count, last_end = 0.0, 0, 0
    for begin in range(0, ids.size(1), stride):
        end = min(begin + window + 1, ids.size(1))
        inputs = ids[:, begin:end]
        labels = inputs.clone()
        labels[:, :-(end - last_end)] = -100
        scored = (labels[:, 1:] != -100).sum().item()
        with torch.no_grad():
            total += model(inputs, labels=labels).loss.double().item() * scored
        count += scored
        last_end = end
        if end == ids.size(1):
            break
    return {"text": text, "window": window, "stride": stride, "tokens": count, "loss": total / count, "perplexity": math.exp(total / count)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep-model", action="store_true")
    if not parser.parse_args().keep_model:
        train_model()
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    for seed, make in enumerate((hellaswag, arc, piqa, lambada, documents, wikitext)):
        write_lines(make.__name__, make(random.Random(100 + seed)))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["HF_DATASETS_CACHE"] = cache
        expected = run_harness()
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    (FOLDER / "strided.json").write_text(json.dumps(strided(32, 8), ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
