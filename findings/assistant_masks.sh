#!/usr/bin/env bash
# Which tokens transformers 5.23.0 marks as the assistant's (return_assistant_tokens_mask), where a token lies across the edge of what the
# chat template has between {% generation %} and {% endgeneration %}. One would expect a token to be marked if it begins there. All that have
# a character of it are marked: " yes" although its space belongs to the template before, and "s!" although its "!" belongs to what comes
# after. Whoever computes such masks by offsets for byte-level BPE, where a word takes the space before it along, gets one token less for each
# answer behind "A: ".
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q transformers==5.23.0 tokenizers==0.23.3 jinja2==3.1.6
"$scratch/venv/bin/python" - <<'PYTHON'
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

transformers.logging.set_verbosity_error()
SPACE = "\u0120"
DIALOGUE = [{"role": "user", "content": "ok"}, {"role": "assistant", "content": "yes"}]


def tokenizer_with(*merges):
    vocabulary = {character: number for number, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for first, second in merges:
        vocabulary[first + second] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def marked(tokenizer, answer):
    template = "{% for m in messages %}{% if m.role == 'assistant' %}" + answer + "{% else %}U: {{ m.content }}\n{% endif %}{% endfor %}"
    encoded = tokenizer.apply_chat_template(DIALOGUE, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    tokens = tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    return [token for token, mark in zip(tokens, encoded["assistant_masks"]) if mark]


before = marked(tokenizer_with((SPACE, "y"), (SPACE + "y", "e"), (SPACE + "ye", "s")), "A: {% generation %}{{ m.content }}{% endgeneration %}\n")
print("transformers 5.23.0: of a token that begins before the answer", before)
assert before == [SPACE + "yes"]
behind = marked(tokenizer_with(("s", "!")), "A: {% generation %}{{ m.content }}{% endgeneration %}!\n")
print("transformers 5.23.0: of a token that ends behind the answer", behind)
assert behind == ["y", "e", "s!"]
inside = marked(tokenizer_with(("e", "s")), "A: {% generation %}{{ m.content }}{% endgeneration %}\n")
print("within it", inside)
assert inside == ["y", "es"]
PYTHON
