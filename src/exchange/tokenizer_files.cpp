#include "gpt/exchange/tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/exchange/text_format_files.h"
#include "gpt/tokenizer/bpe_files.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "gpt/tokenizer/special_tokens.h"

namespace gpt::exchange {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string characters_json(const tokenizer::Tokenizer& tokenizer) {
  ordered_json vocabulary = ordered_json::object();
  auto& entries = vocabulary.get_ref<ordered_json::object_t&>();  // its own insertion searches all members
  const int64_t characters = tokenizer.vocab_size() - std::ssize(tokenizer.special_tokens());
  for (int32_t id = 0; id < characters; ++id) entries.emplace_back(tokenizer.decode({&id, 1}), id);
  const ordered_json each_character = {{"type", "Split"},
                                       {"pattern", {{"Regex", "[\\s\\S]"}}},
                                       {"behavior", "Isolated"},
                                       {"invert", false}};
  const ordered_json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", tokenizer::added_tokens(tokenizer.special_tokens())},
      {"normalizer", nullptr},
      {"pre_tokenizer", each_character},
      {"post_processor", nullptr},
      {"decoder", {{"type", "Fuse"}}},  // without a decoder there would be spaces in between
      // The format asks for an unknown token. This one is not in the vocabulary, so that an unknown character is an error.
      {"model", {{"type", "WordLevel"}, {"vocab", std::move(vocabulary)}, {"unk_token", "<unk>"}}},
  };
  return file.dump();
}

json parse_or_null(std::string_view text) { return json::parse(text, nullptr, /*allow_exceptions=*/false); }

// The characters of a WordLevel model in the order of their ids; empty where the file has another model. Whether the rest of the file
// is as characters_json() writes it remains to be seen.
std::vector<std::string> word_level_tokens(const json& file) {
  const json::json_pointer type("/model/type"), vocab("/model/vocab");
  if (!file.is_object() || !file.contains(type) || file[type] != "WordLevel" || !file.contains(vocab)) return {};
  const json& vocabulary = file[vocab];
  std::vector<std::string> tokens(vocabulary.is_object() ? vocabulary.size() : 0);
  for (const auto& [token, id] : vocabulary.items()) {
    if (tokens.empty() || !id.is_number_unsigned() || id >= tokens.size()) return {};
    tokens[id.get<size_t>()] = token;
  }
  return tokens;
}

// Hugging Face's library counts added tokens on from the vocabulary, whatever ids they have, unless the vocabulary has them, too
// (findings/added_token_ids.sh). So it gets them where it would count otherwise.
std::string with_own_ids(std::string text) {
  json file = json::parse(text);
  json& vocabulary = file["model"]["vocab"];
  json added = json::object();
  bool is_counted = true;
  for (const json& token : file.value("added_tokens", json::array())) {
    if (vocabulary.contains(token["content"])) continue;
    is_counted = is_counted && token["id"] == vocabulary.size() + added.size();
    added[token["content"]] = token["id"];
  }
  if (is_counted) return text;
  vocabulary.update(added);
  return file.dump();
}

}  // namespace

// Splitting does not matter where nothing is merged, so it is the form that every reader knows: GPT-2's.
tokenizer::BpeModel byte_vocabulary(const tokenizer::Tokenizer& tokenizer) {
  tokenizer::BpeModel model;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) model.tokens.push_back(tokenizer.decode({&id, 1}));
  const auto specials = tokenizer.special_tokens();
  model.special_tokens.assign(specials.begin(), specials.end());
  return model;
}

std::string hugging_face_json(const tokenizer::Tokenizer& tokenizer) {
  if (tokenizer.name() == "bpe") return with_own_ids(tokenizer.to_json());
  if (tokenizer.name() == "byte") return tokenizer::tokenizer_json(byte_vocabulary(tokenizer));
  if (tokenizer.name() == "char") return characters_json(tokenizer);
  throw std::logic_error("no form for a tokenizer " + tokenizer.name());
}

std::unique_ptr<tokenizer::Tokenizer> tokenizer_from_hugging_face(std::string_view text, const std::string& origin) {
  const bool is_read =
      text.size() <= tokenizer::kTokenizerSize.bytes && text.find("\"WordLevel\"") != std::string_view::npos;
  const json file = is_read ? parse_or_null(text) : json();
  if (const std::vector<std::string> tokens = word_level_tokens(file); !tokens.empty()) {
    ordered_json own{{"type", "char"}, {"characters", tokens}};
    for (const json& token : file.value("added_tokens", json::array())) {
      const json text = token.is_object() ? token.value("content", json()) : json();
      own["special_tokens"].push_back(text.is_string() ? text.get<std::string>() : "");
    }
    auto characters = tokenizer::tokenizer_from_json(own.dump(), origin);
    if (parse_or_null(characters_json(*characters)) == file) return characters;
    throw Error(
        ExitCode::data,
        fmt::format("{}: model.type is WordLevel, which this program has only over single characters, as gpt-export "
                    "writes it: use another tokenizer",
                    origin));
  }
  return tokenizer::tokenizer_from_json(text, origin);
}

// What a folder with GPT-2's pair has beside it that adds tokens is not read.
std::string tokenizer_file_of(const std::string& folder) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return std::filesystem::exists(folder + "/" + name, ignored); };
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (has(name)) return folder + "/" + name;
  if (names_gpt2_tokenizer(folder) && has("vocab.json") && has("merges.txt") && !has("added_tokens.json"))
    return folder + "/vocab.json";
  return "";
}

std::unique_ptr<tokenizer::Tokenizer> read_tokenizer_file(const std::string& file) {
  if (!file.ends_with(".json") || file.ends_with("/vocab.json")) return tokenizer::make_tokenizer(file, {});
  return tokenizer_from_hugging_face(read_file(file, ExitCode::data, tokenizer::kTokenizerSize), file);
}

}  // namespace gpt::exchange
