#include "gpt/exchange/text_format_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/printable.h"
#include "gpt/tokenizer/bpe_files.h"

namespace gpt::exchange {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char *kTokenizerSettings = "tokenizer_config.json", *kBegin = "bos_token_id", *kEnd = "eos_token_id",
                     *kPad = "pad_token_id";

// One of the files, which may be missing.
struct SettingsFile {
  std::string path;
  json object = json::object();

  bool has(const char* key) const { return object.contains(key) && !object[key].is_null(); }
  [[noreturn]] void refuse(const char* key, const char* needed) const {
    constexpr size_t kLongest = 100;
    const std::string value = object[key].dump(-1, ' ', false, json::error_handler_t::replace);
    throw Error(ExitCode::checkpoint, fmt::format("{}: {} is {}; {} is needed", path, key,
                                                  shortened(printable_line(value), kLongest), needed));
  }
};

// Tokenizers of old folders list all of their added tokens in the same file.
constexpr SizeLimit kSettingsSize{"a file of settings", 16 << 20};

SettingsFile read_settings(const std::string& folder, const char* name) {
  SettingsFile file{folder + "/" + name};
  std::error_code ignored;
  if (!std::filesystem::exists(file.path, ignored)) return file;
  constexpr int kDeepest = 32;
  file.object = json::parse(
      read_file(file.path, ExitCode::checkpoint, kSettingsSize),
      [](int depth, json::parse_event_t, json&) { return depth <= kDeepest; }, /*allow_exceptions=*/false);
  if (file.object.is_object()) return file;
  throw Error(ExitCode::checkpoint, fmt::format("{} cannot be used: it is no JSON object", file.path));
}

// A number or a list of numbers, without those that the model cannot draw.
std::vector<int32_t> tokens_of(const SettingsFile& file, const char* key, int64_t vocab_size) {
  std::vector<int32_t> tokens;
  if (!file.has(key)) return tokens;
  const json &value = file.object[key], list = value.is_array() ? value : json::array({value});
  for (const json& number : list) {
    if (!number.is_number_integer()) file.refuse(key, "a number or a list of numbers");
    const bool is_known = number >= 0 && number < vocab_size;
    if (is_known && std::find(tokens.begin(), tokens.end(), number) == tokens.end())
      tokens.push_back(number.get<int32_t>());
  }
  return tokens;
}

std::optional<int32_t> token_with_text(const tokenizer::Tokenizer& tokenizer, const std::string& text) {
  for (const tokenizer::SpecialToken& special : tokenizer.special_tokens())
    if (special.text == text) return special.id;
  try {
    const std::vector<int32_t> ids = tokenizer.encode_with_specials(text);
    return ids.size() == 1 ? std::optional(ids[0]) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;  // a name that the tokenizer cannot spell
  }
}

// "eos_token": a text, or an object with its content.
std::optional<int32_t> named_token(const SettingsFile& file, const char* key, const tokenizer::Tokenizer& tokenizer) {
  if (!file.has(key)) return std::nullopt;
  const json &value = file.object[key], text = value.is_object() ? value.value("content", json()) : value;
  if (!text.is_string()) file.refuse(key, "the text of a token");
  return token_with_text(tokenizer, text.get<std::string>());
}

// The one for ordinary chats, where there are several templates.
std::string chat_template_of(const std::string& folder, const SettingsFile& settings) {
  constexpr SizeLimit kTemplateSize{"a chat template", 1 << 20};
  constexpr const char *kKey = "chat_template", *kNeeded = "a template, or a list with one whose name is default,";
  const std::string file = folder + "/" + kChatTemplateFile;
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) return read_file(file, ExitCode::checkpoint, kTemplateSize);
  if (!settings.has(kKey)) return "";
  const json& value = settings.object[kKey];
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) settings.refuse(kKey, kNeeded);
  for (const json& entry : value) {
    if (entry.is_object() && entry.value("name", json()) == "default" && entry.value("template", json()).is_string())
      return entry["template"].get<std::string>();
  }
  settings.refuse(kKey, kNeeded);
}

void add_named_tokens(tokenizer::TextFormat& format, const SettingsFile& settings,
                      const tokenizer::Tokenizer& tokenizer) {
  const auto fill = [&](std::optional<int32_t>& place, const char* key) {
    if (!place) place = named_token(settings, key, tokenizer);
  };
  fill(format.begin, "bos_token");
  fill(format.pad, "pad_token");
  fill(format.unknown, "unk_token");
  fill(format.tokenizer_end, "eos_token");
}

// What a step of a post-processor puts before a text, by the texts of its tokens.
std::vector<std::string> prefix_of_step(const json& step) {
  const std::string type = step.is_object() ? step.value("type", "") : "";
  std::vector<std::string> texts;
  if (type == "TemplateProcessing" && step.value("single", json()).is_array()) {
    for (const json& piece : step["single"]) {
      const json special = piece.is_object() ? piece.value("SpecialToken", json()) : json();
      if (!special.is_object() || !special.value("id", json()).is_string()) break;  // the text itself
      texts.push_back(special["id"].get<std::string>());
    }
  } else if ((type == "BertProcessing" || type == "RobertaProcessing") && step.value("cls", json()).is_array() &&
             !step["cls"].empty() && step["cls"][0].is_string()) {
    texts.push_back(step["cls"][0].get<std::string>());
  }
  return texts;
}

// What a call of transformers' tokenizer puts before a text: what tokenizer.json says, or with tokenizer.model alone the first token, unless
// the settings say otherwise.
std::vector<int32_t> prefix_of(const std::string& folder, const SettingsFile& settings,
                               const tokenizer::Tokenizer& tokenizer, std::optional<int32_t> begin) {
  const std::string path = folder + "/tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    const bool adds_begin = std::filesystem::exists(folder + "/tokenizer.model", ignored) &&
                            settings.object.value("add_bos_token", json(true)) == true;
    return adds_begin && begin ? std::vector<int32_t>{*begin} : std::vector<int32_t>();
  }
  const auto without_model = [](int depth, json::parse_event_t event, json& parsed) {
    return depth != 1 || event != json::parse_event_t::key || parsed == "post_processor";
  };
  const json file = json::parse(read_file(path, ExitCode::checkpoint, tokenizer::kTokenizerSize), without_model,
                                /*allow_exceptions=*/false);
  const json processor = file.is_object() ? file.value("post_processor", json()) : json();
  const json steps =
      processor.is_object() && processor.contains("processors") ? processor["processors"] : json::array({processor});
  std::vector<int32_t> ids;
  for (const json& step : steps) {
    for (const std::string& text : prefix_of_step(step))
      if (const auto id = token_with_text(tokenizer, text)) ids.push_back(*id);
  }
  return ids;
}

bool is_plain_byte_level(const json& pre_tokenizer) {
  return pre_tokenizer.is_object() && pre_tokenizer.value("type", "") == "ByteLevel" &&
         pre_tokenizer.value("use_regex", json(true)) == true;
}

}  // namespace

std::optional<tokenizer::TextFormat> read_text_format(const std::string& folder, const tokenizer::Tokenizer* tokenizer,
                                                      int64_t vocab_size) {
  tokenizer::TextFormat format;
  const auto first = [](const std::vector<int32_t>& tokens) {
    return tokens.empty() ? std::nullopt : std::optional(tokens[0]);
  };
  for (const char* name : {"generation_config.json", "config.json"}) {
    const SettingsFile settings = read_settings(folder, name);
    if (!format.begin) format.begin = first(tokens_of(settings, kBegin, vocab_size));
    if (!format.pad) format.pad = first(tokens_of(settings, kPad, vocab_size));
    for (const int32_t end : tokens_of(settings, kEnd, vocab_size))
      if (std::find(format.ends.begin(), format.ends.end(), end) == format.ends.end()) format.ends.push_back(end);
  }
  const SettingsFile settings = read_settings(folder, kTokenizerSettings);
  format.chat_template = chat_template_of(folder, settings);
  if (tokenizer) {
    add_named_tokens(format, settings, *tokenizer);
    add_named_tokens(format, read_settings(folder, "special_tokens_map.json"), *tokenizer);
    format.prefix = prefix_of(folder, settings, *tokenizer, format.begin);
  }
  if (format.ends.empty() && format.tokenizer_end) format.ends = {*format.tokenizer_end};
  return format == tokenizer::TextFormat() ? std::nullopt : std::optional(std::move(format));
}

bool names_gpt2_tokenizer(const std::string& folder) {
  const json name = read_settings(folder, kTokenizerSettings).object.value("tokenizer_class", json());
  if (name.is_null()) return read_settings(folder, "config.json").object.value("model_type", json()) == "gpt2";
  return name == "GPT2Tokenizer" || name == "GPT2TokenizerFast";
}

std::string class_that_splits_otherwise(const std::string& folder) {
  if (!names_gpt2_tokenizer(folder)) return "";
  const std::string path = folder + "/tokenizer.json";
  const json file = json::parse(read_file(path, ExitCode::checkpoint, tokenizer::kTokenizerSize), nullptr,
                                /*allow_exceptions=*/false);
  if (!file.is_object()) return "";
  if (file.value("normalizer", json()).is_null() && is_plain_byte_level(file.value("pre_tokenizer", json()))) return "";
  return fmt::format(
      "{} splits text otherwise than the class GPT2Tokenizer, which transformers 5 goes by in this folder; ids here are "
      "those of the file, and transformers has them, too, with \"tokenizer_class\": \"PreTrainedTokenizerFast\" in {}",
      path, kTokenizerSettings);
}

ordered_json numbered_tokens(const tokenizer::TextFormat& format) {
  ordered_json tokens = ordered_json::object();
  if (format.begin) tokens[kBegin] = *format.begin;
  if (format.ends.size() == 1) tokens[kEnd] = format.ends[0];
  if (format.ends.size() > 1) tokens[kEnd] = format.ends;
  if (format.pad) tokens[kPad] = *format.pad;
  return tokens;
}

ordered_json generation_config_json(const tokenizer::TextFormat& format) {
  ordered_json file = numbered_tokens(format);
  file["top_k"] = 0;
  return file;
}

ordered_json tokenizer_config_json(const tokenizer::Tokenizer& tokenizer, const tokenizer::TextFormat& format,
                                   int64_t block_size) {
  ordered_json file = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"model_max_length", block_size},
                       {"clean_up_tokenization_spaces", false}};
  const auto name = [&](const char* key, const std::optional<int32_t>& id) {
    for (const tokenizer::SpecialToken& token : tokenizer.special_tokens())
      if (token.id == id) file[key] = token.text;
  };
  name("bos_token", format.begin);
  name("eos_token", format.end());
  name("pad_token", format.pad);
  // Byte-level BPE knows every text, but CTranslate2 reads no GPT-2 without an unknown token; OpenAI's names the same one.
  name("unk_token", format.unknown ? format.unknown : format.end());
  return file;
}

}  // namespace gpt::exchange
