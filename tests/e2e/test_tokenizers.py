"""Our tokenizers against tiktoken and Hugging Face tokenizers: a sample of what scripts/compare_tokenizers.sh compares."""

import itertools
import sys
import unittest

from programs import SOURCE

sys.path.insert(0, str(SOURCE / "scripts"))
import compare_tokenizers as compare  # noqa: E402
import make_tokenizer_fixtures as fixtures  # noqa: E402


class SameIds(unittest.TestCase):
    def test_a_sample_of_every_kind_of_text(self):
        texts = {"default corpus": [compare.CORPUS.read_text(encoding="utf-8")[:200_000]],
                 "mixed text": list(compare.mixed_text(6, 300_000)),
                 "random strings": list(compare.random_strings(7, 2_000)),
                 "code points": list(itertools.islice(compare.every_character(), 0, None, 160))}
        self.assertEqual(compare.compare_ids(texts), 0)

    def test_a_sample_of_every_form_of_file(self):
        documents = [*compare.mixed_text(8, 60_000), *compare.random_strings(9, 200)]
        for name in fixtures.FORMS:
            with self.subTest(name):
                self.assertFalse(compare.compare_file(name, fixtures.FOLDER / f"{name}.json", documents))

    def test_a_difference_is_found(self):
        self.assertIsNone(compare.difference(["ab"], [compare.array.array("i", [1, 2])], [[1, 2]]))
        for wrong in ([1, 3], [1], [1, 2, 3]):
            self.assertIn("document 0, id", compare.difference(["ab"], [compare.array.array("i", wrong)], [[1, 2]]))


if __name__ == "__main__":
    unittest.main()
