// What tokenizer.json and GPT-2's pair of files share: tokens with ids, and merges of tokens that are named by their
// spelling in the printable alphabet. Every error message begins with the origin.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gpt/tokenizer/bpe_files.h"
#include "gpt/tokenizer/bpe_model.h"

namespace gpt::tokenizer {

// Throws gpt::Error(data) for a tokenizer of another form; the message begins with `origin`.
[[noreturn]] void refuse_tokenizer(const std::string& origin, const std::string& why);

// The JSON of a vocabulary, up to 64 MiB and 64 levels deep.
nlohmann::json parse_vocabulary_json(std::string_view text, const std::string& origin);

// As an error message shows it: quoted, on one line, truncated if it is long.
std::string shown(const nlohmann::json& value);

enum class TokenSpelling { bytes, text };  // bytes in GPT-2's printable alphabet, or text as it is

// Fills a BpeModel with tokens, each of which has an id of its own. Ids between them that no token has stay empty.
class BpeVocabulary {
 public:
  BpeVocabulary(BpeModel& model, TokenSpelling spelling, std::string origin);

  void add(const std::string& spelling, const nlohmann::json& id);
  void add_special(const std::string& text, const nlohmann::json& id);
  void add_merge(const std::string& left, const std::string& right);  // spellings; `add` them first

 private:
  int32_t take(const nlohmann::json& id, const std::string& name, std::string bytes);
  int32_t id_of(const std::string& spelling) const;

  BpeModel& model_;
  TokenSpelling spelling_;
  std::string origin_;
  std::unordered_map<std::string, int32_t> ids_;  // by spelling
  std::unordered_set<uint64_t> merged_;           // pairs
};

}  // namespace gpt::tokenizer
