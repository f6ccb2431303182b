#include "gpt/data/corpus.h"

#include <gtest/gtest.h>

#include "gpt/core/error.h"
#include "support/expect_error.h"

namespace gpt::data {
namespace {

TEST(Vocabulary, IsTheDatasUnlessALargerOneIsConfigured) {
  Corpus corpus;
  corpus.vocab_size = 65;
  corpus.source = "text.txt";
  EXPECT_EQ(vocabulary_for(corpus, {}), 65);
  EXPECT_EQ(vocabulary_for(corpus, 65), 65);
  EXPECT_EQ(vocabulary_for(corpus, 128), 128);
  corpus.vocab_size = 1;
  EXPECT_ERROR(vocabulary_for(corpus, {}), ExitCode::data, "text.txt: its vocabulary has a single token");
  corpus.vocab_size = 65;
  EXPECT_ERROR(vocabulary_for(corpus, 64), ExitCode::config, "too small for text.txt, which has 65 tokens");
}

}  // namespace
}  // namespace gpt::data
