#!/usr/bin/env bash
# A tokenizer that is trained on texts with <|endoftext|> between them, where <|endoftext|> is named as a special token. One would expect
# its letters to stay out of what is learned. They do in SentencePiece 0.2.3, with user_defined_symbols and with control_symbols. The
# trainers of tokenizers 0.23.3 learn it as if it were ordinary text, also where the tokenizer has the token already, and so does
# train_new_from_iterator of transformers 5.24.0: they make tokens such as "endoftext", which encoding never uses, because it takes the
# special token out first. It is one of the most frequent words of short texts, so that its pieces come early. Texts that are given to the
# trainer one by one, without what is between them, have no such tokens.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q transformers==5.24.0 tokenizers==0.23.3 sentencepiece==0.2.3
"$scratch/venv/bin/python" - <<'PYTHON'
import io

import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END = "<|endoftext|>"
STORIES = ["A cat sat on a mat and saw a bird.", "The dog ran to the old house.", "One day a girl found a red ball."] * 20
TEXT = f"\n{END}\n".join(STORIES)
VOCABULARY = 256 + 1 + 40


def of_the_separator(tokens):
    """Tokens of two and more characters that are pieces of it and of no story."""
    return sorted(token for token in tokens if 1 < len(token) < len(END) and token in END and token not in " ".join(STORIES))


def by_tokenizers(texts, known_before):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if known_before:
        tokenizer.add_special_tokens([END])
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def unused(tokenizer):
    found, encoded = of_the_separator(tokenizer.get_vocab()), tokenizer.encode(TEXT).tokens
    assert encoded.count(END) == len(STORIES) - 1 and not set(found) & set(encoded)
    return found


def by_sentencepiece(**symbols):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter([TEXT.replace("\n", " ")]), model_writer=model, model_type="bpe", vocab_size=80,
                                             minloglevel=2, **symbols)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return of_the_separator([processor.id_to_piece(i) for i in range(len(processor))])


first = by_tokenizers([TEXT], False)
renewed = PreTrainedTokenizerFast(tokenizer_object=first, eos_token=END).train_new_from_iterator([TEXT], VOCABULARY)
assert by_sentencepiece()  # where it is text like any other
for name, found in (("tokenizers 0.23.3", unused(first)), ("... that has the token before", unused(by_tokenizers([TEXT], True))),
                    ("transformers 5.24.0", unused(renewed.backend_tokenizer))):
    print(f"{name}: {len(found)} of 40 learned tokens are pieces of {END} and never used: {found}")
    assert len(found) > 5, found
for name, found in (("tokenizers 0.23.3, story by story", unused(by_tokenizers(STORIES, False))),
                    *((f"SentencePiece 0.2.3, {kind}", by_sentencepiece(**{kind: [END]})) for kind in ("user_defined_symbols", "control_symbols"))):
    print(f"{name}: {found}")
    assert not found, found
PYTHON
