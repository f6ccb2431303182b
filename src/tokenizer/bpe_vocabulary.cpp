#include "bpe_vocabulary.h"

#include <fmt/format.h>

#include <utility>

#include "gpt/core/error.h"
#include "gpt/tokenizer/byte_alphabet.h"
#include "gpt/tokenizer/utf8.h"

namespace gpt::tokenizer {

using nlohmann::json;

void refuse_tokenizer(const std::string& origin, const std::string& why) {
  throw Error(ExitCode::data, fmt::format("{}: not a tokenizer that this program can read: {}", origin, why));
}

json parse_vocabulary_json(std::string_view text, const std::string& origin) {
  constexpr int kMostLevels = 64;
  if (text.size() > kTokenizerSize.bytes) {
    throw Error(ExitCode::data, fmt::format("{}: a file of {} bytes is too large for a tokenizer; at most {} are read",
                                            origin, text.size(), kTokenizerSize.bytes));
  }
  try {
    return json::parse(text, [&](int depth, json::parse_event_t, json&) {
      if (depth <= kMostLevels) return true;
      throw Error(ExitCode::data,
                  fmt::format("{}: JSON nested more than {} levels deep is not a tokenizer", origin, kMostLevels));
    });
  } catch (const json::parse_error& e) {
    refuse_tokenizer(origin, fmt::format("invalid JSON at byte {}", e.byte));
  } catch (const json::exception&) {  // a number that no double can hold
    refuse_tokenizer(origin, "its JSON has a number out of range");
  }
}

std::string shown(const json& value) {
  constexpr size_t kMostBytes = 60;
  constexpr int64_t kShownCharacters = 40;
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= kMostBytes ? text : std::string(utf8::prefix(text, kShownCharacters)) + "...";
}

BpeVocabulary::BpeVocabulary(BpeModel& model, TokenSpelling spelling, std::string origin)
    : model_(model), spelling_(spelling), origin_(std::move(origin)) {}

int32_t BpeVocabulary::take(const json& id, const std::string& name, std::string bytes) {
  if (!id.is_number_integer() || id < 0 || id >= BpeModel::kMostTokens) {
    throw Error(ExitCode::data, fmt::format("{}: token {} has id {}; a number from 0 to {} is needed", origin_,
                                            shown(name), shown(id), BpeModel::kMostTokens - 1));
  }
  if (const auto size = id.get<size_t>() + 1; size > model_.tokens.size()) model_.tokens.resize(size);
  if (bytes.empty()) throw Error(ExitCode::data, fmt::format("{}: the token with id {} is empty", origin_, shown(id)));
  std::string& place = model_.tokens[id.get<size_t>()];
  if (!place.empty()) {
    throw Error(ExitCode::data,
                fmt::format("{}: token {} has id {}, which another token also has", origin_, shown(name), shown(id)));
  }
  place = std::move(bytes);
  return id.get<int32_t>();
}

void BpeVocabulary::add(const std::string& spelling, const json& id) {
  std::optional<std::string> bytes =
      spelling_ == TokenSpelling::text ? std::optional(spelling) : byte_alphabet::bytes(spelling);
  if (!bytes) {
    throw Error(ExitCode::data,
                fmt::format("{}: token {} is not spelled in the alphabet of byte-level BPE; other kinds of "
                            "vocabulary are not supported",
                            origin_, shown(spelling)));
  }
  ids_.emplace(spelling, take(id, spelling, std::move(*bytes)));
}

void BpeVocabulary::add_special(const std::string& text, const json& id) {
  const int32_t number = take(id, text, text);
  ids_.emplace(text, number);  // merges may produce it
  model_.special_tokens.push_back({text, number});
}

int32_t BpeVocabulary::id_of(const std::string& spelling) const {
  const auto found = ids_.find(spelling);
  if (found != ids_.end()) return found->second;
  throw Error(ExitCode::data, fmt::format("{}: merge {} has {}, which is not a token of the vocabulary: the two do "
                                          "not belong together",
                                          origin_, model_.merges.size(), shown(spelling)));
}

void BpeVocabulary::add_merge(const std::string& left, const std::string& right) {
  const std::pair<int32_t, int32_t> pair{id_of(left), id_of(right)};
  if (!merged_.insert(static_cast<uint64_t>(pair.first) << 32 | static_cast<uint32_t>(pair.second)).second) {
    throw Error(ExitCode::data, fmt::format("{}: merge {} of {} and {} is listed twice", origin_, model_.merges.size(),
                                            shown(left), shown(right)));
  }
  model_.merges.push_back(pair);
}

}  // namespace gpt::tokenizer
