#include "gpt/exchange/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/exchange/tokenizer_files.h"
#include "gpt/tokenizer/bpe.h"
#include "gpt/tokenizer/byte_alphabet.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "gpt/tokenizer/pre_tokenizer.h"
#include "sentence_pieces.h"
#include "token_types.h"

namespace gpt::exchange {

namespace {

using nlohmann::json;

constexpr const char* kAddedEnd = "<|endoftext|>";
// The list of merges must not be empty. This one joins what no text consists of.
constexpr const char* kNoMerge = "<|endoftext|> <|endoftext|>";

// Whether the merges make each token of its own bytes, so that it does not matter whether a piece that is a token is merged at all.
bool merges_make_every_token(const tokenizer::BpeTokenizer& tokenizer) {
  tokenizer::BpeModel model = tokenizer.model();
  model.ignore_merges = !model.ignore_merges;
  const tokenizer::BpeTokenizer other(std::move(model));
  const auto& tokens = tokenizer.model().tokens;
  return std::all_of(tokens.begin(), tokens.end(),
                     [&](const std::string& bytes) { return tokenizer.encode(bytes) == other.encode(bytes); });
}

// The pre-tokenizer of llama.cpp's that splits as this; empty: there is none.
std::string_view name_of(tokenizer::SplitPattern split) {
  switch (split) {
    case tokenizer::SplitPattern::gpt2: return "gpt-2";
    case tokenizer::SplitPattern::llama3: return "llama-bpe";
    case tokenizer::SplitPattern::qwen2: return "qwen2";
    case tokenizer::SplitPattern::cl100k:
    case tokenizer::SplitPattern::o200k: break;
  }
  return "";
}

// The one that does with merges what this tokenizer does, too.
std::string split_name(const tokenizer::BpeTokenizer& tokenizer, const std::string& origin) {
  const bool ignores_merges = tokenizer.model().ignore_merges;
  const auto require_merges = [&](const char* whose) {
    if (ignores_merges && !merges_make_every_token(tokenizer))
      refuse_tokenizer(
          origin,
          fmt::format("it splits text as {} does and has ignore_merges, which llama.cpp has only with Llama 3's split",
                      whose));
  };
  switch (tokenizer.model().split) {
    case tokenizer::SplitPattern::gpt2: require_merges("GPT-2"); break;
    case tokenizer::SplitPattern::llama3:
      if (!ignores_merges) return "smaug-bpe";
      break;
    case tokenizer::SplitPattern::qwen2: require_merges("Qwen 2"); break;
    case tokenizer::SplitPattern::cl100k:
    case tokenizer::SplitPattern::o200k: break;
  }
  if (const std::string_view name = name_of(tokenizer.model().split); !name.empty()) return std::string(name);
  refuse_tokenizer(origin, fmt::format("it splits text as {} does, and llama.cpp only as GPT-2, Llama 3 and Qwen 2 do",
                                       tokenizer.model().split == tokenizer::SplitPattern::o200k ? "o200k_base"
                                                                                                 : "cl100k_base"));
}

GgufTokenizer byte_level(const tokenizer::BpeModel& model, std::string split) {
  GgufTokenizer result{.model = "gpt2", .split = std::move(split)};
  for (const std::string& bytes : model.tokens) result.tokens.push_back(byte_alphabet::spell(bytes));
  result.types.assign(result.tokens.size(), kNormal);
  for (const tokenizer::SpecialToken& token : model.special_tokens) {
    result.tokens[token.id] = token.text;
    result.types[token.id] = kControl;
  }
  for (const auto& [left, right] : model.merges)
    result.merges.push_back(result.tokens[left] + " " + result.tokens[right]);
  if (result.merges.empty()) result.merges.emplace_back(kNoMerge);
  return result;
}

// A member that may be missing or null.
bool flag(const json& object, const char* name, bool otherwise) {
  const auto found = object.find(name);
  return found == object.end() || !found->is_boolean() ? otherwise : found->get<bool>();
}

// The steps of a pre-tokenizer, without what changes no ids; null where it is no sequence.
json split_steps(json pre_tokenizer) {
  if (!pre_tokenizer.is_object()) return {};
  json steps = pre_tokenizer["pretokenizers"];
  for (json& step : steps) {
    step.erase("trim_offsets");
    if (step.value("type", "") == "ByteLevel") step["use_regex"] = flag(step, "use_regex", true);
  }
  return steps;
}

// The pre-tokenizer of llama.cpp's that splits as a tokenizer.json of a byte-level BPE does: SmolLM's and StarCoder's, which split off every
// digit before they split as GPT-2 does, and Qwen 2's. Empty where it is another, or something else in the file changes ids.
std::string split_name(json& file) {
  static const json kDigits = {{{"type", "Digits"}, {"individual_digits", true}},
                               {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
                    kQwen2 = {{{"type", "Split"},
                               {"pattern", {{"Regex", tokenizer::regular_expression(tokenizer::SplitPattern::qwen2)}}},
                               {"behavior", "Isolated"},
                               {"invert", false}},
                              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
                    kNfc = {{"type", "NFC"}};
  if (!file.is_object() || flag(file["model"], "ignore_merges", false) || !file["model"]["unk_token"].is_null())
    return "";
  const json steps = split_steps(file["pre_tokenizer"]), &normalizer = file["normalizer"];
  if (steps == kDigits && normalizer.is_null()) return "smollm";
  return steps == kQwen2 && (normalizer.is_null() || normalizer == kNfc) ? "qwen2" : "";
}

// Tokens are spelled in a tokenizer.json as they are here.
GgufTokenizer from_file(const json& file, std::string split, int64_t size, const std::string& origin) {
  GgufTokenizer result{.model = "gpt2", .split = std::move(split)};
  result.tokens.resize(size);
  result.types.assign(size, kNormal);
  for (const auto& [spelling, id] : file["model"]["vocab"].items()) result.tokens[id.get<size_t>()] = spelling;
  for (const json& token : file.value("added_tokens", json::array())) {
    const auto& text = token["content"].get_ref<const std::string&>();
    require_found_anywhere(token, origin);
    const auto id = token["id"].get<size_t>();
    result.tokens[id] = text;
    result.types[id] = flag(token, "special", false) ? kControl : kUserDefined;
  }
  for (const json& merge : file["model"]["merges"])
    result.merges.push_back(merge.is_string() ? merge.get<std::string>()
                                              : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  if (result.merges.empty()) result.merges.emplace_back(kNoMerge);
  return result;
}

GgufTokenizer characters(const tokenizer::Tokenizer& tokenizer, const std::string& origin) {
  GgufTokenizer result{.model = "llama"};
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string text = tokenizer.decode({&id, 1});
    if (text == kSpaceMark) refuse_tokenizer(origin, "its vocabulary has U+2581, which stands for a space there");
    if (text == std::string_view("\0", 1))
      refuse_tokenizer(origin, "its vocabulary has U+0000, which ends a text there");
    result.tokens.push_back(text == " " ? std::string(kSpaceMark) : std::move(text));
  }
  result.types.assign(result.tokens.size(), kNormal);
  for (const tokenizer::SpecialToken& token : tokenizer.special_tokens()) result.types[token.id] = kControl;
  return result;
}

// The tokenizer without its post-processor, which puts tokens before and behind a text and changes none of the text itself.
std::unique_ptr<tokenizer::Tokenizer> without_post_processor(json file, const std::string& origin) {
  file.erase("post_processor");
  return tokenizer::tokenizer_from_json(file.dump(), origin);
}

GgufTokenizer own_tokens(const tokenizer::Tokenizer& tokenizer, const std::string& origin) {
  if (tokenizer.name() == "char") return characters(tokenizer, origin);
  if (const auto* bpe = dynamic_cast<const tokenizer::BpeTokenizer*>(&tokenizer))
    return byte_level(bpe->model(), split_name(*bpe, origin));
  if (tokenizer.name() == "byte") return byte_level(byte_vocabulary(tokenizer), "gpt-2");
  // Any other was read from a tokenizer.json, which it keeps.
  json file = json::parse(tokenizer.to_json(), nullptr, /*allow_exceptions=*/false);
  if (std::string split = split_name(file); !split.empty()) {
    if (!file["normalizer"].is_null())
      log::warn(fmt::format(
          "{}: its tokenizer composes characters (NFC), and llama.cpp does not: a text that is not composed "
          "has other ids there",
          origin));
    return from_file(file, std::move(split), tokenizer.vocab_size(), origin);
  }
  if (has_sentence_pieces(file)) {
    SentencePieces pieces = sentence_pieces(file, tokenizer.vocab_size(), origin);
    return {.model = "llama",
            .tokens = std::move(pieces.tokens),
            .types = std::move(pieces.types),
            .scores = std::move(pieces.scores),
            .adds_space = pieces.adds_space};
  }
  const auto bare = without_post_processor(std::move(file), origin);
  if (const auto* bpe = dynamic_cast<const tokenizer::BpeTokenizer*>(bare.get()))
    return byte_level(bpe->model(), split_name(*bpe, origin));
  refuse_tokenizer(origin,
                   "it is neither a byte-level BPE with a split that is known there nor of SentencePiece's kind");
}

std::string unused_token(size_t id) { return fmt::format("[PAD{}]", id); }

// Ids without a token, between others and behind them.
void fill_unused(GgufTokenizer& tokenizer, int64_t vocab_size) {
  const size_t own = tokenizer.tokens.size();
  tokenizer.tokens.resize(static_cast<size_t>(vocab_size));
  tokenizer.types.resize(static_cast<size_t>(vocab_size), kUnused);
  for (size_t id = 0; id < tokenizer.tokens.size(); ++id) {
    if (id < own && !tokenizer.tokens[id].empty()) continue;
    tokenizer.tokens[id] = unused_token(id);
    tokenizer.types[id] = kUnused;
  }
}

}  // namespace

GgufTokenizer gguf_tokenizer(const tokenizer::Tokenizer& tokenizer, const tokenizer::TextFormat& format,
                             int64_t vocab_size, const std::string& origin) {
  GgufTokenizer result = own_tokens(tokenizer, origin);
  if (std::ssize(result.tokens) > vocab_size)
    refuse_tokenizer(origin, fmt::format("it has {} tokens, and the model {}", result.tokens.size(), vocab_size));
  fill_unused(result, vocab_size);
  result.format = format;
  result.adds_end = !format.end();
  if (result.adds_end) {
    result.format.ends = {static_cast<int32_t>(result.tokens.size())};
    result.tokens.emplace_back(kAddedEnd);
    result.types.push_back(kControl);
  }
  if (!result.format.begin) result.format.begin = result.format.end();
  std::unordered_set<std::string_view> seen;
  for (const std::string& token : result.tokens) {
    if (seen.insert(token).second) continue;
    refuse_tokenizer(origin, fmt::format("its vocabulary would have '{}' twice", printable_line(token)));
  }
  return result;
}

bool splits_as(const tokenizer::Tokenizer& tokenizer, std::string_view split) {
  if (const auto* bpe = dynamic_cast<const tokenizer::BpeTokenizer*>(&tokenizer))
    return name_of(bpe->model().split) == split;
  json file = json::parse(tokenizer.to_json(), nullptr, /*allow_exceptions=*/false);
  return split_name(file) == split;
}

namespace {

// llama.cpp has three names for tokens that end a text: of a text, of a turn and of a message.
void add_ends(GgufMetadata& metadata, const tokenizer::TextFormat& format) {
  std::vector<int32_t> ends = {*format.end()};
  std::copy_if(format.ends.begin(), format.ends.end(), std::back_inserter(ends),
               [&](int32_t id) { return id != ends[0]; });
  constexpr const char* kNames[] = {"eos", "eot", "eom"};
  for (size_t i = 0; i < std::min(ends.size(), std::size(kNames)); ++i)
    metadata.add(fmt::format("tokenizer.ggml.{}_token_id", kNames[i]), static_cast<uint32_t>(ends[i]));
}

}  // namespace

void add_tokenizer(GgufMetadata& metadata, const GgufTokenizer& tokenizer) {
  const bool is_bpe = !tokenizer.split.empty();
  const tokenizer::TextFormat& format = tokenizer.format;
  const auto add_id = [&](const char* key, const std::optional<int32_t>& id) {
    if (id) metadata.add(key, static_cast<uint32_t>(*id));
  };
  metadata.add("tokenizer.ggml.model", tokenizer.model);
  if (is_bpe) metadata.add("tokenizer.ggml.pre", tokenizer.split);
  metadata.add("tokenizer.ggml.tokens", tokenizer.tokens);
  if (!is_bpe) {
    std::vector<float> scores = tokenizer.scores;
    scores.resize(tokenizer.tokens.size());
    metadata.add("tokenizer.ggml.scores", scores);
  }
  metadata.add("tokenizer.ggml.token_type", tokenizer.types);
  if (is_bpe) metadata.add("tokenizer.ggml.merges", tokenizer.merges);
  add_id("tokenizer.ggml.bos_token_id", format.begin);
  add_ends(metadata, format);
  add_id("tokenizer.ggml.padding_token_id", format.pad);
  add_id("tokenizer.ggml.unknown_token_id", format.unknown);
  metadata.add("tokenizer.ggml.add_bos_token", format.begin && format.prefix == std::vector{*format.begin});
  metadata.add("tokenizer.ggml.add_eos_token", false);
  metadata.add("tokenizer.ggml.add_space_prefix", tokenizer.adds_space);
  if (!format.chat_template.empty()) metadata.add("tokenizer.chat_template", format.chat_template);
}

}  // namespace gpt::exchange
