#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_class_table.cpp: which characters are letters, numbers and white space in Unicode 16.

    pip install unicodedata2==16.0.0 && python scripts/make_unicode_tables.py            # rewrites the table

unicodedata2 carries the character database of one Unicode version, whichever Python runs it. White_Space is not a general
category, but since Unicode 6.3 it has been the separators and six controls. scripts/compare_tokenizers.sh compares the
table with tiktoken and Hugging Face tokenizers, for every code point.
"""

import pathlib

import unicodedata2

TABLE = pathlib.Path(__file__).resolve().parent.parent / "src" / "tokenizer" / "unicode_class_table.cpp"
CODE_POINTS = 0x110000
PAGE = 256  # code points; unicode_class.h has the same number
OTHER, LETTER, NUMBER, SPACE = range(4)
SPACE_CONTROLS = [*range(0x09, 0x0E), 0x85]


def character_class(value):
    category = unicodedata2.category(chr(value))[0]
    if value in SPACE_CONTROLS or category == "Z":
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(category, OTHER)


def page_words(classes):
    """A page as 64-bit words, two bits per character, the first one in the lowest bits."""
    return tuple(sum(c << 2 * i for i, c in enumerate(classes[at:at + 32])) for at in range(0, PAGE, 32))


def rows(values, form, per_row):
    return "".join("    " + " ".join(f"{form(v)}," for v in values[at:at + per_row]) + "\n" for at in range(0, len(values), per_row))


def main():
    assert unicodedata2.unidata_version == "16.0.0", unicodedata2.unidata_version
    classes = [character_class(value) for value in range(CODE_POINTS)]
    used = max(value for value in range(CODE_POINTS) if classes[value] != OTHER) + 1
    pages, index = {}, []
    for at in range(0, used, PAGE):
        index.append(pages.setdefault(page_words(classes[at:at + PAGE]), len(pages)))
    assert len(pages) <= 256, "a page number must fit into a byte"
    words = [word for page in pages for word in page]
    TABLE.write_text(f"""// Unicode {unicodedata2.unidata_version}. Written by scripts/make_unicode_tables.py; do not edit.
// clang-format off
#include "unicode_class.h"

namespace gpt::unicode {{

const size_t kClassPageCount = {len(index)};

const uint8_t kClassPages[] = {{
{rows(index, str, 24)}}};

const uint64_t kClasses[] = {{
{rows(words, lambda word: f"0x{word:X}" if word else "0", 5)}}};

}}  // namespace gpt::unicode
""")
    counts = {name: classes.count(c) for name, c in [("letters", LETTER), ("numbers", NUMBER), ("spaces", SPACE)]}
    print(f"{TABLE}: {len(pages)} pages of {PAGE} characters; " + ", ".join(f"{n} {name}" for name, n in counts.items()))


if __name__ == "__main__":
    main()
