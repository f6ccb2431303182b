// Writing: byte for byte what Hugging Face tokenizers 0.23 writes for the same tokenizer.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/tokenizer/bpe_files.h"
#include "gpt/tokenizer/byte_alphabet.h"
#include "gpt/tokenizer/pre_tokenizer.h"
#include "gpt/tokenizer/special_tokens.h"

namespace gpt::tokenizer {
namespace {

using nlohmann::ordered_json;

ordered_json byte_level(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

ordered_json pre_tokenizer(SplitPattern split) {
  if (split == SplitPattern::gpt2) return byte_level(false, true);
  const ordered_json pieces = {{"type", "Split"},
                               {"pattern", {{"Regex", regular_expression(split)}}},
                               {"behavior", "Isolated"},
                               {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", ordered_json::array({pieces, byte_level(false, false)})}};
}

}  // namespace

std::string tokenizer_json(const BpeModel& model) {
  std::vector<std::string> spellings;
  for (const std::string& bytes : model.tokens) spellings.push_back(byte_alphabet::spell(bytes));
  for (const SpecialToken& token : model.special_tokens) spellings[token.id] = token.text;

  ordered_json vocabulary = ordered_json::object(), merges = ordered_json::array();
  // This bypasses ordered_json's own insertion, which searches all existing members.
  auto& entries = vocabulary.get_ref<ordered_json::object_t&>();
  for (size_t id = 0; id < spellings.size(); ++id)
    if (!spellings[id].empty()) entries.emplace_back(spellings[id], id);
  for (const auto& [left, right] : model.merges) merges.push_back({spellings[left], spellings[right]});

  const ordered_json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens(model.special_tokens)},
      {"normalizer", nullptr},
      {"pre_tokenizer", pre_tokenizer(model.split)},
      {"post_processor", nullptr},
      {"decoder", byte_level(true, true)},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", model.ignore_merges},
        {"vocab", std::move(vocabulary)},
        {"merges", std::move(merges)}}},
  };
  std::string text = file.dump();
  if (text.size() <= kTokenizerSize.bytes) return text;
  throw Error(ExitCode::data,
              fmt::format("the tokenizer has {} bytes as JSON, and at most {} could be read again; use a smaller "
                          "vocabulary",
                          with_commas(static_cast<int64_t>(text.size())),
                          with_commas(static_cast<int64_t>(kTokenizerSize.bytes))));
}

}  // namespace gpt::tokenizer
