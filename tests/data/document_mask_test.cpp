#include "gpt/data/document_mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gpt/tokenizer/make_tokenizer.h"
#include "support/expect_error.h"

namespace gpt::data {
namespace {

constexpr int32_t kEnd = -1;  // stands for the end of a text

Corpus corpus_of(const std::vector<std::vector<int32_t>>& sources, const std::string& tokenizer = "bpe:300") {
  Corpus corpus;
  corpus.tokenizer = tokenizer::make_tokenizer(tokenizer, "some text to learn from, some text");
  corpus.vocab_size = corpus.tokenizer->vocab_size();
  corpus.source = "texts";
  for (std::vector<int32_t> ids : sources) {
    if (const auto end = corpus.tokenizer->end_of_text()) std::replace(ids.begin(), ids.end(), kEnd, *end);
    corpus.sources.push_back(Tokens::from_ids(ids, corpus.vocab_size));
  }
  corpus.train = corpus.sources[0];
  return corpus;
}

int32_t end_of(const Corpus& corpus) { return corpus.tokenizer->end_of_text().value(); }

TEST(DocumentMask, IsOffUnlessAskedFor) {
  Corpus without = corpus_of({{1, 2}}, "char");
  EXPECT_EQ(document_separator({}, without), std::nullopt);
  without.tokenizer.reset();
  EXPECT_EQ(document_separator({}, without), std::nullopt);
}

TEST(DocumentMask, NeedsATokenThatSeparatesDocuments) {
  DataConfig config;
  config.document_mask = true;
  Corpus corpus = corpus_of({{1, 2}});
  EXPECT_EQ(document_separator(config, corpus), corpus.tokenizer->end_of_text());
  corpus = corpus_of({{1, 2}}, "char");
  EXPECT_ERROR(document_separator(config, corpus), ExitCode::config,
               "data.document_mask: true needs documents, and this tokenizer marks no end of text; set "
               "data.document_mask: false, or a tokenizer such as bpe:4096 or gpt2");
  corpus.tokenizer.reset();
  EXPECT_ERROR(
      document_separator(config, corpus), ExitCode::config,
      "data.document_mask: true needs the token that separates documents, and the tokenizer of texts is not known; "
      "name it in data.tokenizer, or set data.document_mask: false");
}

TEST(DocumentMask, SaysHowLongDocumentsAre) {
  // The last of three is in another source.
  const Corpus corpus = corpus_of({{1, 2, 3, kEnd, 4, 5}, {6, 7, kEnd, 8, 9, 10, 11}});
  EXPECT_EQ(find_documents(corpus, end_of(corpus)).description,
            "attention stays within a document, which begins with <|endoftext|>; one has about 5 tokens");
  EXPECT_EQ(find_documents(corpus, end_of(corpus)).idle, "");
}

TEST(DocumentMask, ChangesNothingWhereThereIsOneDocument) {
  // Before the first token there is nothing, and the last one is only predicted.
  for (const std::vector<int32_t>& ids : {std::vector<int32_t>{1, 2, 3, kEnd}, {kEnd, 1, 2, 3}, {1, 2}, {}}) {
    const Corpus corpus = corpus_of({ids});
    EXPECT_EQ(find_documents(corpus, end_of(corpus)).idle,
              "data.document_mask changes nothing: the training data is one document, without <|endoftext|> inside");
    EXPECT_EQ(find_documents(corpus, end_of(corpus)).description,
              "attention stays within a document, which begins with <|endoftext|>");
  }
  EXPECT_NE(find_documents(corpus_of({{1, kEnd, 2}}), 2).idle, "") << "of another token";
}

}  // namespace
}  // namespace gpt::data
