#include "src/tokenizer/text_change.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "src/tokenizer/pipeline_json.h"
#include "support/source_folder.h"

namespace gpt::tokenizer {
namespace {

using nlohmann::json;

// Written by scripts/make_tokenizer_fixtures.py.
TEST(TextChange, ChangesTextsAsHuggingFaceDoes) {
  const std::string path = test::source_folder() + "/tests/tokenizer/hugging_face/normalized.jsonl";
  std::istringstream lines(read_file(path, ExitCode::data));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json sample = json::parse(line);
    TokenizerPipeline pipeline;
    read_normalizer(JsonNode(sample["normalizer"], "normalizer", "test"), pipeline);
    std::string text = sample["text"];
    for (const TextChange& change : pipeline.changes) change(text);
    EXPECT_EQ(text, sample["normalized"]) << sample["normalizer"] << " of " << sample["text"];
  }
  EXPECT_GE(count, 250);
}

}  // namespace
}  // namespace gpt::tokenizer
