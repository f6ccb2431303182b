#include "gpt/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "byte_tokenizer.h"
#include "char_tokenizer.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/tokenizer/utf8.h"

namespace gpt {
namespace {

using nlohmann::json;

// What a reader of tokenizer JSON says about it: `origin` first.
[[noreturn]] void refuse(const std::string& origin, const std::string& why) {
  throw Error(ExitCode::data, fmt::format("{}: not a tokenizer of this program: {}", origin, why));
}

std::unique_ptr<Tokenizer> char_tokenizer(const json& object, const std::string& origin) {
  const auto list = object.find("characters");
  if (list == object.end() || !list->is_array() || list->empty()) refuse(origin, "'characters' must be a list of characters");
  if (list->size() > utf8::kCodePoints) refuse(origin, fmt::format("{} characters; Unicode has 1114112", list->size()));

  std::vector<char32_t> characters;
  std::vector<bool> seen(utf8::kCodePoints);
  for (size_t i = 0; i < list->size(); ++i) {
    const json& entry = (*list)[i];
    if (!entry.is_string()) refuse(origin, fmt::format("characters[{}] is {}; a text is needed", i, entry.type_name()));
    const auto& text = entry.get_ref<const std::string&>();  // the JSON parser has checked that it is UTF-8
    if (text.empty() || utf8::decode(text, 0).bytes != text.size()) {
      refuse(origin, fmt::format("characters[{}] has {} bytes; exactly one character is needed", i, text.size()));
    }
    const char32_t value = utf8::decode(text, 0).value;
    if (seen[value]) refuse(origin, fmt::format("characters[{}] repeats {}", i, utf8::describe(value)));
    seen[value] = true;
    characters.push_back(value);
  }
  return std::make_unique<CharTokenizer>(std::move(characters));
}

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids);
  return ids;
}

std::vector<int32_t> Tokenizer::encode_with_specials(std::string_view text) const {
  const std::span<const SpecialToken> specials = special_tokens();
  std::vector<size_t> found;  // where each comes next; searched for again only when that is passed
  for (const SpecialToken& special : specials) found.push_back(text.find(special.text));

  std::vector<int32_t> ids;
  for (size_t begin = 0; begin < text.size();) {
    const SpecialToken* next = nullptr;
    size_t at = text.size();
    for (size_t i = 0; i < specials.size(); ++i) {
      if (found[i] < begin) found[i] = text.find(specials[i].text, begin);
      const bool longer = next && found[i] == at && specials[i].text.size() > next->text.size();
      if (found[i] < at || longer) at = found[i], next = &specials[i];
    }
    encode(text.substr(begin, at - begin), ids);
    if (!next) break;
    ids.push_back(next->id);
    begin = at + next->text.size();
  }
  return ids;
}

std::optional<int32_t> Tokenizer::end_of_text() const {
  for (const std::string_view name : {"<|endoftext|>", "<|end_of_text|>", "</s>"}) {
    for (const SpecialToken& special : special_tokens()) {
      if (special.text == name) return special.id;
    }
  }
  return std::nullopt;
}

std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view text, const std::string& origin) {
  json object;
  try {
    object = json::parse(text);
  } catch (const json::parse_error& e) {
    refuse(origin, fmt::format("invalid JSON at byte {}", e.byte));
  }
  if (!object.is_object()) refuse(origin, fmt::format("the JSON is {}; an object is needed", object.type_name()));
  const auto type = object.find("type");
  if (type == object.end() || !type->is_string()) refuse(origin, "'type' is missing");

  if (*type == "char") return char_tokenizer(object, origin);
  if (*type == "byte") return std::make_unique<ByteTokenizer>();
  refuse(origin, fmt::format("unknown type {}; known are char and byte", type->dump()));
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec, std::string_view training_text) {
  if (spec == "char") return std::make_unique<CharTokenizer>(CharTokenizer::from_text(training_text));
  if (spec == "byte") return std::make_unique<ByteTokenizer>();
  std::error_code error;
  if (!std::filesystem::is_regular_file(spec, error)) {
    throw Error(ExitCode::config, fmt::format("data.tokenizer: '{}' is neither char, byte nor the file of a saved tokenizer", spec));
  }
  return tokenizer_from_json(read_file(spec, ExitCode::data), spec);
}

}  // namespace gpt
