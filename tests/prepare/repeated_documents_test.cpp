// Documents that repeat an earlier one are left out, wherever they lie.
#include "src/prepare/repeated_documents.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/file.h"
#include "gpt/prepare/prepare.h"
#include "prepare/packed.h"

namespace gpt::prepare {
namespace {

class DeduplicateTest : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& bytes) const { return folder_.file(name, bytes); }

  // What is left of the input, in bytes, and how many documents are not.
  std::string prepared(const std::vector<std::string>& inputs, Deduplicate how, int64_t max_chars = 0) {
    PrepareOptions options;
    options.inputs = inputs;
    options.tokenizer = "byte";
    options.validation_fraction = 0;
    options.deduplicate = how;
    options.max_chars = max_chars;
    metadata_ = prepare(options, folder_ / "out");
    const std::string ids = read_file(folder_ / "out/tokens_bpe.bin", ExitCode::data);
    std::string text;
    for (size_t i = 0; i < ids.size(); i += 2) text += ids[i];
    return text;
  }

  const ScratchFolder folder_;
  data::Metadata metadata_;
};

TEST_F(DeduplicateTest, TheFirstOfEqualDocumentsStays) {
  const std::string
      a = file("a.txt", "one\r\ntwo\r\n"),
      b = file("b.txt", "one\ntwo\n"), c = file("c.txt", "One\ntwo\n"),
      lines =
          file("d.jsonl",
               "{\"text\": \"x\\n\"}\n{\"text\": \"one\\ntwo\\n\"}\n\n{\"text\": \"x\\n\"}\n{\"text\": \"y\\n\"}\n");
  EXPECT_EQ(prepared({a, b, c, lines}, Deduplicate::exact), "one\ntwo\nOne\ntwo\nx\ny\n");
  EXPECT_EQ(metadata_.repeated_documents, 3);
  EXPECT_EQ(metadata_.train.documents, 4);
  EXPECT_EQ(prepared({a, b, c, lines}, Deduplicate::none), "one\ntwo\none\ntwo\nOne\ntwo\nx\none\ntwo\nx\ny\n");
  EXPECT_EQ(metadata_.repeated_documents, 0);
  EXPECT_EQ(prepared({a, file("e.gz", gzip("one\ntwo\n"))}, Deduplicate::exact), "one\ntwo\n");
}

// In parts, of which only the last ones differ.
TEST_F(DeduplicateTest, LongDocumentsAreComparedAsAWhole) {
  std::string text;
  while (text.size() < 2'000'000) text += "words and line ends \r\n";
  const std::string a = file("a.txt", text + "a"), b = file("b.txt", text + "b"), again = file("c.txt", text + "a"),
                    d = file("d.txt", "d\r\n");
  const std::string both = prepared({a, b, again, d}, Deduplicate::exact);
  EXPECT_EQ(metadata_.repeated_documents, 1);
  EXPECT_TRUE(both == prepared({a, b, d}, Deduplicate::none));
}

TEST_F(DeduplicateTest, TheLimitOfCharactersCountsWhatIsLeftOut) {
  const std::string a = file("a.txt", "abc"), b = file("b.txt", "abc"), c = file("c.txt", "def");
  EXPECT_EQ(prepared({a, b, c}, Deduplicate::exact, 7), "abcd");
  EXPECT_EQ(prepared({a, c}, Deduplicate::exact, 7), "abcdef");
}

TEST_F(DeduplicateTest, AFileThatIsPassedOverRepeatsNothing) {
  file("in/1.txt", "one\n");
  file("in/2.gz", gzip("two\n").substr(0, 12));
  file("in/3.jsonl", "{\"text\": \"three\\n\"}\n{\"text\": 3}\n");
  file("in/4.txt", "three\n");
  file("in/5.txt", "one\n");
  file("in/6.txt", "six\n");
  EXPECT_EQ(prepared({folder_ / "in"}, Deduplicate::exact), "one\nthree\nsix\n");
  EXPECT_EQ(metadata_.skipped.size(), 2);
}

std::string words(int from, int to) {
  std::string text;
  for (int i = from; i < to; ++i) text += "word" + std::to_string(i) + (i % 9 == 0 ? ",\n" : " ");
  return text + "\n";
}

TEST_F(DeduplicateTest, NearDocumentsHaveNearlyTheSameWords) {
  const std::string a = file("a.txt", words(0, 400)), shifted = file("b.txt", "A new title!\n" + words(5, 400)),
                    half = file("c.txt", words(200, 600)), other = file("d.txt", words(1000, 1400));
  EXPECT_EQ(prepared({a, shifted, half, other}, Deduplicate::near),
            words(0, 400) + words(200, 600) + words(1000, 1400));
  EXPECT_EQ(metadata_.repeated_documents, 1);
  EXPECT_EQ(prepared({file("e.txt", "?!\n"), file("f.txt", "...\n"), file("g.txt", "...\n")}, Deduplicate::near),
            "?!\n...\n");
  EXPECT_EQ(prepared({file("h.txt", "Two words\n"), file("i.txt", "two  WORDS.\n")}, Deduplicate::near), "Two words\n");
}

// The share of places that agree estimates the Jaccard similarity of the sets, with the standard error of a binomial.
TEST(MinHash, AgreesAsOftenAsTheSetsDo) {
  for (const int shared : {0, 100, 250, 380}) {
    const MinHash a = min_hash(words(0, 404)), b = min_hash(words(404 - 4 - shared, 808 - 4 - shared));
    const double jaccard = shared / (800.0 - shared);  // 400 runs of five words each
    int agree = 0;
    for (int k = 0; k < kMinHashes; ++k) agree += a[k] == b[k];
    EXPECT_NEAR(agree / double{kMinHashes}, jaccard, 4 * std::sqrt(jaccard * (1 - jaccard) / kMinHashes) + 1e-9)
        << shared;
  }
}

}  // namespace
}  // namespace gpt::prepare
