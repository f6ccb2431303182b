// Reading. Whatever in Hugging Face's file could change the ids of a text is either implemented or refused by name; a
// post-processor only adds tokens around them, which Hugging Face's encode(add_special_tokens=True) does and ours never.
#include "tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "bpe_vocabulary.h"
#include "gpt/core/error.h"
#include "gpt/tokenizer/bpe_files.h"
#include "json_node.h"
#include "pipeline_json.h"

namespace gpt::tokenizer {
namespace {

using nlohmann::json;

std::vector<AddedToken> read_added_tokens(const JsonNode& list, const json& vocabulary) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  std::set<std::string_view> seen;
  const json* last_id = nullptr;
  for (const JsonNode& entry : list.elements()) {
    entry.must_have_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    const JsonNode content = entry["content"], id = entry["id"];
    if (!seen.insert(content.text()).second) content.malformed("a token that is not listed yet");
    if (content.text().empty()) content.malformed("a text that is not empty");
    if (content.text().size() > AddedTokens::kLongest)
      content.malformed(fmt::format("a text of at most {} bytes", AddedTokens::kLongest));
    const auto ordinary = vocabulary.find(content.text());
    const bool in_vocabulary = ordinary != vocabulary.end();
    if (in_vocabulary && *ordinary != id.value())
      id.malformed(fmt::format("{}, as in the vocabulary,", shown(*ordinary)));
    if (last_id && !(id.value() > *last_id)) id.malformed("an id above that of the token before");
    last_id = &id.value();
    if (!id.value().is_number_unsigned() || id.value() > BpeModel::kMostTokens) id.malformed("a number of a token");
    tokens.push_back({.text = content.text(),
                      .id = id.value().get<int32_t>(),
                      .special = entry["special"].flag(false),
                      .single_word = entry["single_word"].flag(false),
                      .left_strip = entry["lstrip"].flag(false),
                      .right_strip = entry["rstrip"].flag(false),
                      .normalized = entry["normalized"].flag(true),
                      .in_vocabulary = in_vocabulary});
  }
  return tokens;
}

void read_merges(const JsonNode& merges, BpeVocabulary& tokens) {
  for (const JsonNode& merge : merges.elements()) {
    const json& value = merge.value();
    if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
      tokens.add_merge(value[0], value[1]);
      continue;
    }
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      merge.malformed("a pair of tokens");
    tokens.add_merge(text.substr(0, space), text.substr(space + 1));
  }
}

void read_vocabulary(const JsonNode& file, const std::string& origin, TokenizerPipeline& pipeline) {
  const JsonNode vocabulary = file["model"]["vocab"];
  if (!vocabulary.value().is_object()) vocabulary.malformed("an object of tokens and ids");
  pipeline.added_tokens = read_added_tokens(file["added_tokens"], vocabulary.value());
  std::set<std::string_view> added;
  for (const AddedToken& token : pipeline.added_tokens) added.insert(token.text);
  BpeVocabulary tokens(pipeline.model, pipeline.is_byte_level ? TokenSpelling::bytes : TokenSpelling::text, origin);
  for (const auto& [spelling, id] : vocabulary.value().items()) {
    if (added.count(spelling) == 0) tokens.add(spelling, id);
  }
  for (const AddedToken& token : pipeline.added_tokens) tokens.add_special(token.text, token.id);
  read_merges(file["model"]["merges"], tokens);
}

bool has_every_byte(const BpeModel& model) {
  std::set<std::string_view> bytes;
  for (const std::string& token : model.tokens) {
    if (token.size() == 1) bytes.insert(token);
  }
  return bytes.size() == 256;
}

// What becomes of a character that has no token. A vocabulary of all bytes needs none of it.
void read_unknown(const JsonNode& bpe, TokenizerPipeline& pipeline) {
  CharacterBpeOptions& options = pipeline.characters;
  options.fuse_unknown = bpe["fuse_unk"].flag(false);
  options.byte_fallback = bpe["byte_fallback"].flag(false);
  const JsonNode unknown = bpe["unk_token"];
  if (pipeline.is_byte_level) {
    if (has_every_byte(pipeline.model)) return;
    if (!unknown.is_null()) unknown.refuse("some bytes have no token");
    if (options.byte_fallback) bpe["byte_fallback"].refuse("some bytes have no token");
    return;
  }
  options.in_vocabulary.assign(pipeline.model.tokens.size(), true);
  for (const AddedToken& token : pipeline.added_tokens) options.in_vocabulary[token.id] = token.in_vocabulary;
  if (unknown.is_null()) return;
  const auto id = bpe["vocab"].value().find(unknown.text());
  if (id == bpe["vocab"].value().end()) unknown.malformed("a token of the vocabulary");
  options.unknown = id->get<int32_t>();
}

}  // namespace

bool TokenizerPipeline::is_plain() const {
  const auto is_plain_token = [&](const AddedToken& token) {
    const bool same = token.normalized == added_tokens.front().normalized;  // it only says which are found first
    return token.special && !token.single_word && !token.left_strip && !token.right_strip && same;
  };
  return is_byte_level && splits_as_model && changes.empty() && splitters.empty() &&
         std::all_of(added_tokens.begin(), added_tokens.end(), is_plain_token);
}

TokenizerPipeline read_tokenizer_json(const json& object, const std::string& origin) {
  const JsonNode file(object, "", origin);
  file.must_have_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                       "post_processor", "decoder", "model"});
  file["version"].must_be({"1.0"});

  const JsonNode bpe = file["model"];
  if (!bpe.is_type("BPE") && !bpe["type"].is_null()) bpe.unsupported("BPE");  // old files leave it out
  bpe.must_have_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                      "byte_fallback", "ignore_merges", "vocab", "merges"});
  bpe["dropout"].must_be({nullptr, 0.0});
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) bpe[key].must_be({nullptr, ""});

  TokenizerPipeline pipeline;
  read_normalizer(file["normalizer"], pipeline);
  read_pre_tokenizer(file["pre_tokenizer"], pipeline);
  read_post_processor(file["post_processor"], pipeline);
  read_decoder(file["decoder"], pipeline);
  pipeline.model.ignore_merges = bpe["ignore_merges"].flag(false);
  read_vocabulary(file, origin, pipeline);
  read_unknown(bpe, pipeline);
  return pipeline;
}

BpeModel parse_tokenizer_json(std::string_view text, const std::string& origin) {
  const json file = parse_vocabulary_json(text, origin);
  if (!file.is_object())
    throw Error(ExitCode::data, fmt::format("{}: the JSON is {}; an object is needed", origin, file.type_name()));
  TokenizerPipeline pipeline = read_tokenizer_json(file, origin);
  if (pipeline.is_plain()) return std::move(pipeline.model);
  throw Error(ExitCode::data, fmt::format("{}: the tokenizer is more than a vocabulary of bytes and merges", origin));
}

}  // namespace gpt::tokenizer
