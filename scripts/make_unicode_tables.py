#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_class_table.cpp: which characters are letters, of which case, marks, numbers and white space in Unicode 16; and
src/tokenizer/unicode_sets_table.cpp: where Hugging Face tokenizers and the libraries that we use know different characters.

    pip install unicodedata2==16.0.0 tokenizers==0.23.3 && python3.11 scripts/make_unicode_tables.py      # rewrites the tables

unicodedata2 carries the character database of one Unicode version, whichever Python runs it. White_Space is not a general
category, but since Unicode 6.3 it has been the separators and six controls. scripts/compare_tokenizers.sh compares the
table with tiktoken and Hugging Face tokenizers, for every code point. Python 3.11 carries Unicode 14, as the oldest libraries do
that we build with; what tokenizers does with a character is seen by asking it.
"""

import itertools
import pathlib
import unicodedata

import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "src" / "tokenizer"
TABLE = FOLDER / "unicode_class_table.cpp"
SETS = FOLDER / "unicode_sets_table.cpp"
SCRIPTS = ["Han", "Hiragana", "Katakana", "Hangul", "Latin", "Greek", "Cyrillic", "Arabic", "Hebrew", "Thai", "Devanagari"]
CODE_POINTS = 0x110000
PAGE = 256  # code points; unicode_class.h has the same number
BITS = 4  # of each
OTHER, LETTER, NUMBER, SPACE, MARK, UPPER, LOWER = 0, 1, 2, 3, 4, 5, 9  # unicode_class.h: the lowest two bits are the class
SPACE_CONTROLS = [*range(0x09, 0x0E), 0x85]


def character_kind(value):
    category = unicodedata2.category(chr(value))
    if value in SPACE_CONTROLS or category[0] == "Z":
        return SPACE
    cases = {"Lu": UPPER, "Lt": UPPER, "Ll": LOWER}
    return cases.get(category, {"L": LETTER, "N": NUMBER, "M": MARK}.get(category[0], OTHER))


def page_words(kinds):
    """A page as 64-bit words, the first character in the lowest bits."""
    each = 64 // BITS
    return tuple(sum(kind << BITS * i for i, kind in enumerate(kinds[at:at + each])) for at in range(0, PAGE, each))


def rows(values, form, per_row):
    return "".join("    " + " ".join(f"{form(v)}," for v in values[at:at + per_row]) + "\n" for at in range(0, len(values), per_row))


def all_characters():
    return (value for value in range(CODE_POINTS) if not 0xD800 <= value < 0xE000)


def ranges(values):
    """[(first, last), ...] of an ascending sequence."""
    for _, run in itertools.groupby(enumerate(values), lambda pair: pair[1] - pair[0]):
        run = [value for _, value in run]
        yield run[0], run[-1]


def matched(pattern):
    """Which characters a regular expression for one character matches in tokenizers."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    text = "".join(map(chr, all_characters()))
    return sorted({ord(c) for at in range(0, len(text), 4096) for piece, _ in split.pre_tokenize_str(text[at:at + 4096]) for c in piece})


def set_apart(pre_tokenizer):
    """Which characters it does not leave in one piece with letters."""
    return [value for value in all_characters() if len(pre_tokenizer.pre_tokenize_str(f"a{chr(value)}a")) == 3]


def normalized_otherwise():
    """Characters that Unicode 16 decomposes, reorders or composes, and tokenizers does not."""
    decompose, compatibly = normalizers.NFD(), normalizers.NFKD()
    found = set()
    for value in all_characters():
        text, mark = chr(value), f"a\u0301{chr(value)}\u0334"
        if decompose.normalize_str(text) != unicodedata2.normalize("NFD", text):
            found.update([value, *(ord(part) for part in unicodedata2.normalize("NFD", text) if not unicodedata2.combining(part))])
        elif (compatibly.normalize_str(text) != unicodedata2.normalize("NFKD", text)
              or decompose.normalize_str(mark) != unicodedata2.normalize("NFD", mark)):
            found.add(value)
    return sorted(found)


def write_sets():
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    added = [v for v in all_characters() if unicodedata.category(chr(v)) == "Cn" != unicodedata2.category(chr(v))]
    categories = []
    for category, run in itertools.groupby(added, lambda value: unicodedata2.category(chr(value))):
        categories += [f'{{0x{first:X}, 0x{last:X}, "{category}"}}' for first, last in ranges(run)]
    numbers = {value for value in all_characters() if character_kind(value) == NUMBER}

    def array(name, values):
        return f"const CodePointRange {name}[] = {{\n{rows(list(ranges(values)), lambda r: f'{{0x{r[0]:X}, 0x{r[1]:X}}}', 6)}}};\n"

    scripts = {name: matched(rf"\p{{{name}}}") for name in SCRIPTS}
    SETS.write_text(f"""// Written by scripts/make_unicode_tables.py; do not edit.
// clang-format off
#include "unicode_sets.h"

namespace gpt::unicode {{
namespace {{

const CategoryRange kAdded[] = {{
{rows(categories, str, 5)}}};

{"".join(array(f"k{name}", values) for name, values in scripts.items())}
const ScriptRanges kAllScripts[] = {{
{rows([f'{{"{name.lower()}", k{name}}}' for name in SCRIPTS], str, 4)}}};

{array("kPunctuationRanges", set_apart(pre_tokenizers.Punctuation()))}
{array("kLaterNumberRanges", sorted(set(set_apart(pre_tokenizers.Digits(individual_digits=True))) - numbers))}
{array("kUnnormalizedRanges", normalized_otherwise())}
}}  // namespace

const std::span<const CategoryRange> kAddedSinceUnicode14 = kAdded;
const std::span<const ScriptRanges> kScripts = kAllScripts;
const std::span<const CodePointRange> kPunctuation = kPunctuationRanges;
const std::span<const CodePointRange> kLaterNumbers = kLaterNumberRanges;
const std::span<const CodePointRange> kUnnormalized = kUnnormalizedRanges;

}}  // namespace gpt::unicode
""")


def main():
    write_sets()
    assert unicodedata2.unidata_version == "16.0.0", unicodedata2.unidata_version
    kinds = [character_kind(value) for value in range(CODE_POINTS)]
    used = max(value for value in range(CODE_POINTS) if kinds[value] != OTHER) + 1
    pages, index = {}, []
    for at in range(0, used, PAGE):
        index.append(pages.setdefault(page_words(kinds[at:at + PAGE]), len(pages)))
    assert len(pages) <= 256, "a page number must fit into a byte"
    words = [word for page in pages for word in page]
    TABLE.write_text(f"""// Unicode {unicodedata2.unidata_version}. Written by scripts/make_unicode_tables.py; do not edit.
// clang-format off
#include "unicode_class.h"

namespace gpt::unicode {{

const size_t kKindPageCount = {len(index)};

const uint8_t kKindPages[] = {{
{rows(index, str, 24)}}};

const uint64_t kKinds[] = {{
{rows(words, lambda word: f"0x{word:X}" if word else "0", 7)}}};

}}  // namespace gpt::unicode
""")
    print(f"{TABLE}: {len(pages)} pages of {PAGE} characters")


if __name__ == "__main__":
    main()
