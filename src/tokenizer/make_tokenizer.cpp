#include "gpt/tokenizer/make_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "bpe_vocabulary.h"
#include "byte_tokenizer.h"
#include "char_tokenizer.h"
#include "extended_tokenizer.h"
#include "gpt/config/suggest.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/tokenizer/bpe.h"
#include "gpt/tokenizer/bpe_files.h"
#include "gpt/tokenizer/bpe_trainer.h"
#include "gpt/tokenizer/utf8.h"
#include "pipeline_tokenizer.h"
#include "sentencepiece_model.h"
#include "tokenizer_json.h"

namespace gpt::tokenizer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::unique_ptr<Tokenizer> char_tokenizer(const json& object, const std::string& origin) {
  const auto list = object.find("characters");
  if (list == object.end() || !list->is_array() || list->empty())
    refuse_tokenizer(origin, "'characters' must be a list of characters");
  if (list->size() > utf8::kCodePoints)
    refuse_tokenizer(origin, fmt::format("{} characters; Unicode has 1114112", list->size()));

  std::vector<char32_t> characters;
  std::vector<bool> seen(utf8::kCodePoints);
  for (size_t i = 0; i < list->size(); ++i) {
    const json& entry = (*list)[i];
    if (!entry.is_string())
      refuse_tokenizer(origin, fmt::format("characters[{}] is {}; a string is needed", i, entry.type_name()));
    const auto& text = entry.get_ref<const std::string&>();  // the JSON parser has checked that it is UTF-8
    if (text.empty() || utf8::decode(text, 0).bytes != text.size()) {
      refuse_tokenizer(origin,
                       fmt::format("characters[{}] has {} bytes; exactly one character is needed", i, text.size()));
    }
    const char32_t value = utf8::decode(text, 0).value;
    if (seen[value]) refuse_tokenizer(origin, fmt::format("characters[{}] repeats {}", i, utf8::describe(value)));
    seen[value] = true;
    characters.push_back(value);
  }
  return std::make_unique<CharTokenizer>(std::move(characters));
}

// The same with the special tokens that the file has behind its own.
std::unique_ptr<Tokenizer> with_own_specials(std::unique_ptr<Tokenizer> tokenizer, const json& object,
                                             const std::string& origin) {
  const auto list = object.find(ExtendedTokenizer::kSpecialTokens);
  if (list == object.end()) return tokenizer;
  std::vector<std::string> texts;
  if (!list->is_array() || list->empty()) refuse_tokenizer(origin, "'special_tokens' must be a list of texts");
  for (const json& entry : *list) {
    const std::string text = entry.is_string() ? entry.get<std::string>() : "";
    if (text.empty() || std::find(texts.begin(), texts.end(), text) != texts.end())
      refuse_tokenizer(origin, fmt::format("'special_tokens' has {}; texts that differ are needed", shown(entry)));
    texts.push_back(text);
  }
  return std::make_unique<ExtendedTokenizer>(std::move(tokenizer), texts);
}

// nanoGPT keeps its characters in such a file.
[[noreturn]] void refuse_pickle(const std::string& path) {
  throw Error(
      ExitCode::data,
      fmt::format("{0}: a Python pickle, which is never opened; nanoGPT's meta.pkl becomes a tokenizer with python3 -c "
                  "\"import json, pickle; c = pickle.load(open('{0}', 'rb'))['itos']; json.dump({{'type': 'char', "
                  "'characters': [c[i] for i in range(len(c))]}}, open('characters.json', 'w'))\"; then name "
                  "characters.json",
                  path));
}

std::unique_ptr<Tokenizer> read_gpt2_files(const fs::path& vocabulary, const fs::path& merges) {
  const auto read = [](const fs::path& file) { return read_file(file.string(), ExitCode::data, kTokenizerSize); };
  const std::string both = fmt::format("{} with {}", vocabulary.string(), merges.filename().string());
  return std::make_unique<BpeTokenizer>(parse_gpt2_files(read(vocabulary), read(merges), both), both);
}

std::unique_ptr<Tokenizer> read_tokenizer(const fs::path& path) {
  const auto read = [](const fs::path& file) { return read_file(file.string(), ExitCode::data, kTokenizerSize); };
  const std::string origin = path.string();
  if (path.extension() == ".tiktoken")
    return std::make_unique<BpeTokenizer>(parse_tiktoken(read(path), origin), origin);
  const fs::path folder = path.parent_path();
  if (path.extension() == ".bpe" || path.filename() == "encoder.json")  // GPT-2's pair
    return read_gpt2_files(folder / "encoder.json", path.extension() == ".bpe" ? path : folder / "vocab.bpe");
  if (path.filename() == "merges.txt" || path.filename() == "vocab.json")  // the same in Hugging Face's older folders
    return read_gpt2_files(folder / "vocab.json", folder / "merges.txt");
  const std::string text = read(path);
  constexpr char kPickle = '\x80';
  if (text.starts_with(kPickle)) refuse_pickle(origin);
  if (path.extension() == ".model" || path.stem().extension() == ".model")  // tokenizer.model.v3
    return tokenizer_from_json(json_of_sentencepiece_model(text, origin), origin);
  return tokenizer_from_json(text, origin);
}

// Hugging Face's file without the lengths to which texts were last cut or filled up before it was saved (findings/saved_truncation.sh).
std::string without_lengths(std::string_view text, const json& object) {
  const auto is_set = [&](const char* key) { return object.contains(key) && !object[key].is_null(); };
  if (!is_set("truncation") && !is_set("padding")) return std::string(text);
  json file = object;
  file["truncation"] = file["padding"] = nullptr;
  return file.dump();
}

// "; did you mean bpe:1000?" for "bep:1000" or "BPE:1000".
std::string probably_meant(const std::string& spec) {
  const size_t colon = spec.find(':');
  const std::string rest = colon == std::string::npos ? "" : spec.substr(colon);
  const auto near =
      config::did_you_mean(spec.substr(0, colon), rest.empty() ? std::vector<std::string>{"char", "byte", "gpt2"}
                                                               : std::vector<std::string>{"bpe"});
  return near ? fmt::format("; did you mean {}{}?", *near, rest) : config::did_you_mean_path(spec);
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view text, const std::string& origin) {
  const json object = parse_vocabulary_json(text, origin);
  if (!object.is_object())
    refuse_tokenizer(origin, fmt::format("the JSON is {}; an object is needed", object.type_name()));
  if (const auto model = object.find("model"); model != object.end() && model->is_object()) {
    TokenizerPipeline pipeline = read_tokenizer_json(object, origin);
    if (pipeline.is_plain() && !pipeline.adds_tokens)
      return std::make_unique<BpeTokenizer>(std::move(pipeline.model), origin);
    return std::make_unique<PipelineTokenizer>(std::move(pipeline), without_lengths(text, object), origin);
  }
  const auto type = object.find("type");
  if (type == object.end()) refuse_tokenizer(origin, "it has neither 'type' nor Hugging Face's 'model'");

  if (*type == "char") return with_own_specials(char_tokenizer(object, origin), object, origin);
  if (*type == "byte") return with_own_specials(std::make_unique<ByteTokenizer>(), object, origin);
  refuse_tokenizer(origin, fmt::format("unknown type {}; only char and byte are known", shown(*type)));
}

std::optional<int64_t> trained_vocabulary(const std::string& spec) {
  constexpr std::string_view kPrefix = "bpe:";
  if (spec != "bpe" && !spec.starts_with(kPrefix)) return std::nullopt;
  int64_t size = 0;
  const char* const end = spec.data() + spec.size();
  const auto [stop, error] = std::from_chars(std::min(spec.data() + kPrefix.size(), end), end, size);
  if (error == std::errc() && stop == end && size > 0) return size;
  throw Error(ExitCode::config,
              fmt::format("tokenizer '{}': bpe needs the size of its vocabulary, as in bpe:8192", spec));
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec, std::string_view training_text) {
  if (spec == "char") return std::make_unique<CharTokenizer>(CharTokenizer::from_text(training_text));
  if (spec == "byte") return std::make_unique<ByteTokenizer>();
  if (spec == "gpt2") return std::make_unique<BpeTokenizer>(gpt2_vocabulary(), spec);
  if (const auto vocab_size = trained_vocabulary(spec)) {
    BpeTrainer trainer({.vocab_size = *vocab_size});
    trainer.add(training_text);
    return std::make_unique<BpeTokenizer>(trainer.train(), spec);
  }
  std::error_code error;
  if (!fs::is_regular_file(spec, error)) {
    throw Error(ExitCode::config, fmt::format("tokenizer '{}': it is not char, byte, gpt2, bpe:N or a tokenizer file{}",
                                              spec, probably_meant(spec)));
  }
  return read_tokenizer(spec);
}

}  // namespace gpt::tokenizer
