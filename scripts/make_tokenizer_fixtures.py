#!/usr/bin/env python3
"""Writes tests/tokenizer/hugging_face/: small vocabularies as Hugging Face tokenizers writes them, and the ids it produces.

    python scripts/make_tokenizer_fixtures.py     # with tokenizers==0.23.3; rewrites the same bytes every time

FORMS has one tokenizer for each way in which the families of models split, normalize and decode text.
scripts/compare_tokenizers.py compares the same forms on much more text.
"""

import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "tokenizer" / "hugging_face"

TEXT = ["To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer the slings and arrows.",
        "He'll say they're here; we've 1234 of them, I'm sure it's 56789!  Tabs\tand\n\n  lines.",
        "Käse, naïve façade, Москва, 東京, 🙂🙂 and a\u00a0hard space."] * 3
SAMPLES = TEXT[:3] + ["", " ", "\n\n \t x", "the<|endoftext|>question<|endoftext|>", "THEY'RE they're 12345 67",
                      "unseen: \u0001 \u00ff \U0010ffff", "  lines.\r\n\r\n"]
# What forms beyond a plain split are tried on as well.
HARD = ["e\u0301 Åﬁ ½ ㎏ \u1100\u1161\u11a8 \u0344x a\u0327\u0301", "x\u2581y \u2581\u2581 z", "<s>the</s> <unk> <mask>  the <pad>", "<0x41><0xE2>",
        "a²b ٣٤٥ Ⅷ 1,234.50", "日本語のテキスト、カタカナ。中文", "👩\u200d👩\u200d👧 \u200bx\u200c\ufeff", "helloWorld HTTPServer's IT'S",
        "def f(x):\n    return x  # done\n\n\n", "  \u3000\u2003wide\u00a0\u0085spaces\u2028", "\u0897\U0001ccd6\U000105d2\u0307\U00011de0 new",
        "(a)-[b]_{c} … «d» “e”", "don't hello  hello-there hellos", "\u0001\u0002\x7f\0", "\u05d0\u05b4\u05d0 \u0938\u094d\u0924\u0947 ก็"]

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + "?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + "?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
POSSESSIVE = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
              r"|\s*[\r\n]|\s+(?!\S)|\s")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        + CONTRACTIONS + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LEGACY_DECODER = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(pattern if isinstance(pattern, str) else Regex(pattern[0]), behavior, invert)


def train(pre_tokenizer, specials, texts, size, normalizer=None):
    """Byte-level, as GPT-2's family."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    return tokenizer


def byte_level(*steps, use_regex=False, add_prefix_space=False):
    last = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)
    return pre_tokenizers.Sequence([*steps, last]) if steps else last


def characters(pre_tokenizer, normalizer, decoder, texts, size, fallback=True, **options):
    """Over characters, as SentencePiece's family; with the tokens of all bytes if `fallback`."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=fallback, **options))
    if normalizer:
        tokenizer.normalizer = normalizer
    # Trained with a split into words, which the tokenizer itself may not have.
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.Metaspace(prepend_scheme="always")
    specials = ["<unk>", "<s>", "</s>"] + ([f"<0x{byte:02X}>" for byte in range(256)] if fallback else [])
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, limit_alphabet=60, show_progress=False))
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = file["added_tokens"][:3]
    if not pre_tokenizer:
        file["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.decoder = decoder
    return tokenizer


def gpt2(texts=TEXT, size=320):
    return train(byte_level(use_regex=True), ["<|endoftext|>"], texts, size)


def llama3(texts=TEXT, size=320):
    """Like Llama 3's: special tokens after the vocabulary and not in it, whole pieces first, a token before every text."""
    trained = json.loads(train(byte_level(split([LLAMA3])), [], texts, size).to_str())
    vocabulary = trained["model"]["vocab"]
    vocabulary.setdefault("Ġquestion", len(vocabulary))  # no merge produces it; it is found only as a whole piece
    trained["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(trained))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in ("<|begin_of_text|>", "<|endoftext|>")])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", begin)])
    return tokenizer


def qwen2(texts=TEXT, size=320):
    tokenizer = train(byte_level(split([QWEN2])), [], texts, size, normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False, special=False)])
    return tokenizer


def gpt4o(texts=TEXT, size=320):
    return train(byte_level(split([O200K])), ["<|endoftext|>"], texts, size)


def possessive(texts=TEXT, size=320):
    """cl100k_base as tiktoken spells it, which Oniguruma reads in its own way."""
    return train(byte_level(split([POSSESSIVE])), ["<|endoftext|>"], texts, size)


def deepseek(texts=TEXT, size=320):
    return train(byte_level(split([r"[\r\n]"]), split([r"\s?\p{L}+"]), split([r"\s?\p{P}+"]), split(["[一-龥ࠀ-一가-퟿]+"]),
                            pre_tokenizers.Digits(individual_digits=True)), ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"], texts, size,
                 normalizers.Sequence([]))


def deepseek3(texts=TEXT, size=320):
    return train(byte_level(split([r"\p{N}{1,3}"]), split(["[一-龥぀-ゟ゠-ヿ]+"]), split([DEEPSEEK3])),
                 ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"], texts, size, normalizers.Sequence([]))


def kimi(texts=TEXT, size=320):
    return train(byte_level(split([KIMI], "removed", True)), ["[BOS]", "[EOS]"], texts, size)


def smollm(texts=TEXT, size=320):
    return train(byte_level(pre_tokenizers.Digits(individual_digits=True), use_regex=True),
                 ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], texts, size)


def falcon(texts=TEXT, size=320):
    return train(pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                                          pre_tokenizers.Digits(individual_digits=False), split(["[0-9][0-9][0-9]"])]),
                 ["<|endoftext|>"], texts, size)


def roberta(texts=TEXT, size=320):
    tokenizer = train(byte_level(use_regex=True, add_prefix_space=True), ["<s>", "<pad>", "</s>", "<unk>"], texts, size)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def codegen(texts=TEXT, size=320):
    """Tokens of white space and words that are found in plain text."""
    tokenizer = train(byte_level(use_regex=True), ["<|endoftext|>"], texts, size)
    tokenizer.add_tokens([" " * count for count in range(8, 1, -1)] + ["\t\t", AddedToken("hello", single_word=True),
                                                                     AddedToken("lo", rstrip=True, normalized=False),
                                                                     AddedToken("the", lstrip=True), AddedToken("endof")])
    return tokenizer


def llama2_legacy(texts=TEXT, size=500):
    tokenizer = characters(None, normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
                           decoders.Sequence([*LEGACY_DECODER, decoders.Strip(" ", 1, 0)]), texts, size, fuse_unk=True)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def llama2(texts=TEXT, size=500):
    return characters(pre_tokenizers.Metaspace(prepend_scheme="first", split=False), None,
                      decoders.Sequence([*LEGACY_DECODER, decoders.Strip(" ", 1, 0)]), texts, size, fuse_unk=True)


def gemma(texts=TEXT, size=500):
    tokenizer = characters(split(" ", "merged_with_previous"), normalizers.Replace(" ", "▁"), decoders.Sequence(LEGACY_DECODER),
                           texts, size, fuse_unk=True)
    tokenizer.add_tokens([AddedToken("\n" * count, normalized=False) for count in range(2, 5)])
    return tokenizer


def metaspace(texts=TEXT, size=200):
    """Without tokens of bytes: what the vocabulary lacks is unknown."""
    return characters(pre_tokenizers.Metaspace(prepend_scheme="always"), None, decoders.Metaspace(), texts, size, False, fuse_unk=False)


def fused_unknown(texts=TEXT, size=200):
    return characters(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="never")]),
                      normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex(r"\s{2,}|\n"), " ")]),
                      decoders.Metaspace(prepend_scheme="never"), texts, size, False, fuse_unk=True)


def words(texts=TEXT, size=200):
    return characters(pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(), pre_tokenizers.Punctuation()]),
                      normalizers.NFD(), decoders.Fuse(), texts, size, False, fuse_unk=True, ignore_merges=True)


def behaviors(texts=TEXT, size=320):
    return train(byte_level(split("e", "merged_with_next"), split([r"\d+"], "contiguous"), split([r"[^\S ]"], "merged_with_previous"),
                            split(", ", "removed"), split([r"\w+(?=\W|$)"], "merged_with_next", True), split([r"(?i)th|\bo|(?<=b)e*?"])),
                 ["<|endoftext|>"], texts, size, normalizers.NFKD())


PLAIN = {form.__name__: form for form in (gpt2, llama3)}
FORMS = PLAIN | {form.__name__: form for form in (
    qwen2, gpt4o, possessive, deepseek, deepseek3, kimi, smollm, falcon, roberta, codegen, llama2_legacy, llama2, gemma, metaspace,
    fused_unknown, words, behaviors)}


# Regular expressions and what their matches are; and normalizers and what they make of a text.
PATTERNS = [
    r"\p{N}{1,3}+", r"a{2}?", r"a{,2}", r"a{1,2}?", r"(?:ab|a)*+b", r"a++b|a", r"x{", r"\h+", r"\H+", r"\w+", r"\W+", r"\d", r"\D+", r"\s+$",
    r"^\S+", r"(?i:'s|'T)", r"(?i)the|q", r"(a(?i)b|c)d", r"(?m:a.b)", r"a.b", r"[^\S\n]+", r"[a-f&&[^c]]+", r"[^a-f&&[^c]]+", r"[\w&&\p{Han}]+",
    r"[-a]+", r"[a-]+", r"[a&&]+", r"\p{^L}+", r"\P{L}+", r"\p{Han}+|\p{Hiragana}+|\p{Katakana}", r"\p{Cyrillic}+", r"\p{Letter}|\p{ S }",
    r"\p{C}", r"\p{Cn}", r"\bt|e\b", r"\B.", r"(?<=e) ", r"(?<!\p{L})'", r"(?=b)", r"(?!b)", r"e*", r"", r"\u0041|\x{4e00}|\x41|\x{1F642}", r"\Aa|\z", r"b\Z",
    r"(?<name>a|b)+", r"a(?#comment)b", r"(?>a+)b", r"\.|\-|\#", r"[\]\[\-\^]", r"[.^$*]+", r"\n|\t|\e", r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\s+(?!\S)|\s+",
    r"(?-i:A)", r"(?i-m:A.)", r"[[a-c][x-z]]+", r"[^[a-c]x]+", r"[\p{P}\p{S}]+[\r\n]*", r"[一-龥぀-ゟ゠-ヿ]+", r"a**", r"a*+a", r"(a|b){2,3}", r"[\d\s]+", r"$", r"^",
]
PATTERN_TEXT = ("aab ab aAa 12345 a{2} x{ {1} The the q's it'T \n\nabd aBd cd a\nb a b abcdef---- -a a- ĄБВг 漢字かなカナ 'te' (e) ²½Ⅷ٣ ﬀß\u0301 "
                "\u200d\u00a0\u2028. A一🙂\x41\x1b ^[]*$.# \U0001ccd6\u0897\U000105d2\U00011de0\u0378 aaaa bb\n \t\r\n")
NORMALIZERS = [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Sequence([]), normalizers.Prepend("▁"),
               normalizers.Replace(" ", "▁"), normalizers.Replace(Regex(r"\s+|$"), "_"), normalizers.Replace("a", ""), normalizers.Strip(),
               normalizers.Strip(left=False), normalizers.Strip(right=False),
               normalizers.Sequence([normalizers.NFD(), normalizers.Replace(Regex(r"\p{M}"), ""), normalizers.Strip()])]
NORMALIZED = ["", " ", "plain text", *HARD, "q\u0307\u0323 \u1e9b\u0323", "\ud55c\uae00 \u1112\u1161\u11ab", "\u0344\u0345\u0301" * 3,
              "a" + "\u0316\u0301\u0334" * 200, "\U00011935\U00011930 \U000105c9 \u32ff", "\u00c5\u212b\u2126 \ufb03", "ა\u2003 x \u3000"]


def pieces(pattern, text):
    """Where its matches are that are not empty, in characters."""
    return [span for _, span in pre_tokenizers.Split(Regex(pattern), "removed", invert=True).pre_tokenize_str(text)]


def write_lines(name, records):
    (FOLDER / name).write_text("".join(f"{json.dumps(record)}\n" for record in records))


def encoded(tokenizer, texts):
    """The ids with special tokens as ordinary text, and with them parsed; without what the post-processor adds. And their text."""
    for text in texts:
        ids = {}
        for name, ordinary in (("ids", True), ("ids_with_specials", False)):
            tokenizer.encode_special_tokens = ordinary
            ids[name] = tokenizer.encode(text, add_special_tokens=False).ids
        yield {"text": text, **ids, "decoded": tokenizer.decode(ids["ids_with_specials"], skip_special_tokens=False)}


def main():
    FOLDER.mkdir(exist_ok=True)
    for name, make in FORMS.items():
        tokenizer = make()
        (FOLDER / f"{name}.json").write_text(tokenizer.to_str(), encoding="utf-8")
        write_lines(f"{name}_ids.jsonl", encoded(tokenizer, SAMPLES if name in PLAIN else SAMPLES + HARD))
    write_lines("matches.json", [{"text": PATTERN_TEXT, "matches": {pattern: pieces(pattern, PATTERN_TEXT) for pattern in PATTERNS}}])
    write_lines("normalized.jsonl", ({"normalizer": json.loads(normalizer.__getstate__()), "text": text,
                                      "normalized": normalizer.normalize_str(text)} for normalizer in NORMALIZERS for text in NORMALIZED))
    print(f"{FOLDER}: {len(FORMS)} tokenizers", file=sys.stderr)


if __name__ == "__main__":
    main()
