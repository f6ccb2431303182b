#include "gpt/prepare/prepare_command.h"

#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <vector>

#include "support/expect_error.h"

namespace gpt::prepare {
namespace {

TEST(PrepareOptionsTest, ReadsTheCommandLine) {
  const char* words[] = {"gpt-prepare",
                         "--input",
                         "a.txt",
                         "b.txt",
                         "--input=-.jsonl",
                         "--output",
                         "out",
                         "--tokenizer",
                         "bpe:4096",
                         "--format",
                         "llmc",
                         "--text_field",
                         "body",
                         "--validation-fraction",
                         "0.2",
                         "--min-frequency",
                         "3",
                         "--max-chars",
                         "7",
                         "--parse-special-tokens",
                         "--seed",
                         "9",
                         "--threads",
                         "2",
                         "--force",
                         "--deduplicate",
                         "near"};
  const auto command = parse_prepare_options(std::size(words), words);
  ASSERT_TRUE(command);
  const PrepareOptions& o = command->options;
  EXPECT_EQ(o.inputs, (std::vector<std::string>{"a.txt", "b.txt", "-.jsonl"}));
  EXPECT_EQ(command->output_dir, "out");
  EXPECT_EQ(o.tokenizer, "bpe:4096");
  EXPECT_EQ(o.format, BinFormat::llmc);
  EXPECT_EQ(o.text_field, "body");
  EXPECT_EQ(o.validation_fraction, 0.2);
  EXPECT_EQ(o.min_frequency, 3);
  EXPECT_EQ(o.max_chars, 7);
  EXPECT_TRUE(o.parse_special_tokens);
  EXPECT_EQ(o.seed, 9);
  EXPECT_EQ(o.threads, 2);
  EXPECT_TRUE(o.force);
  EXPECT_EQ(o.deduplicate, Deduplicate::near);
}

TEST(PrepareOptionsTest, SaysWhatIsMissingOrMisspelt) {
  const auto parse = [](std::vector<const char*> words) {
    words.insert(words.begin(), "gpt-prepare");
    return parse_prepare_options(static_cast<int>(words.size()), words.data());
  };
  EXPECT_ERROR(parse({"--output", "out"}), ExitCode::config, "nothing to read: give --input");
  EXPECT_ERROR(parse({"--input", "a"}), ExitCode::config, "nowhere to write: give --output");
  EXPECT_TRUE(parse({"--input", "a", "--list"})->list);
  EXPECT_EQ(parse({"--input", "a", "--output", "b"})->options.deduplicate, Deduplicate::exact);
  EXPECT_ERROR(parse({"--input", "a", "--tokeniser", "gpt2"}), ExitCode::config, "did you mean '--tokenizer'?");
  EXPECT_ERROR(parse({"--input", "a", "--output", "b", "--format", "npy"}), ExitCode::config, "npy");
  EXPECT_ERROR(parse({"--input", "a", "--output", "b", "--seed", "x"}), ExitCode::config, "x");
  for (const char* flag : {"--min-frequency", "--max-chars", "--threads", "--seed"}) {
    EXPECT_ERROR(parse({"--input", "a", "--output", "b", flag, "-1"}), ExitCode::config,
                 std::string(flag) + " must be a whole number");
  }
  for (const char* fraction : {"1", "nan", "-0.1"}) {
    EXPECT_ERROR(parse({"--input", "a", "--output", "b", "--validation-fraction", fraction}), ExitCode::config,
                 "--validation-fraction must be a number from 0 to 0.999");
  }
}

}  // namespace
}  // namespace gpt::prepare
