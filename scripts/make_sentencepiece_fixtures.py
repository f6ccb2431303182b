#!/usr/bin/env python3
"""Writes tests/tokenizer/sentencepiece/: small models of SentencePiece, and the ids and texts that it gives with them.

    python scripts/make_sentencepiece_fixtures.py     # with sentencepiece==0.2.3; rewrites the same bytes every time
"""

import io
import json
import pathlib

import sentencepiece

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "tokenizer" / "sentencepiece"
TEXT = ["To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer the slings and arrows.",
        "He'll say they're here; we've 1234 of them, I'm sure it's 56789!  Tabs\tand   lines.", "Käse, naïve façade, Москва, 東京"]
SAMPLES = TEXT + ["", " ", "  ", "   a", "x  y   z", "question<sep>the  <sep>", "<s>the</s><unk>", "<0x41>", "unseen: \u0001 \U0010ffff 🙂🙂",
                  "▁the ▁▁", "lines.\n\n\nTo", "ab(c)(c)", "<sep><s><sep>", "<s>"]
PLAIN = {"model_type": "bpe", "normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True,
         "vocab_size": 400}
MODELS = {"llama": PLAIN,
          "gemma": {**PLAIN, "add_dummy_prefix": False, "user_defined_symbols": ["<sep>", "▁▁", "▁▁▁", "\n\n", "(c)"], "pad_id": 0, "eos_id": 1,
                    "bos_id": 2, "unk_id": 3, "allow_whitespace_only_pieces": True},
          "letters": {**PLAIN, "byte_fallback": False, "vocab_size": 120, "user_defined_symbols": ["<sep>"]}}

FOLDER.mkdir(exist_ok=True)
for name, settings in MODELS.items():
    model = io.BytesIO()  # a file would name its own path
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_writer=model, minloglevel=2, hard_vocab_limit=False, **settings)
    (FOLDER / f"{name}.model").write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    lines = [{"text": text, "ids": processor.encode(text), "decoded": processor.decode(processor.encode(text))} for text in SAMPLES]
    (FOLDER / f"{name}_ids.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
