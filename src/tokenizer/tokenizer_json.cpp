// Reading. Whatever in Hugging Face's file could change the ids of a text is either implemented or refused by name; a
// post-processor only adds tokens around them, which Hugging Face's encode(add_special_tokens=True) does and ours never.
#include "tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "bpe_vocabulary.h"
#include "gpt/core/error.h"
#include "gpt/tokenizer/bpe_files.h"
#include "gpt/tokenizer/pre_tokenizer.h"

namespace gpt {
namespace {

using nlohmann::json;

constexpr SplitPattern kPatterns[] = {SplitPattern::gpt2, SplitPattern::cl100k, SplitPattern::llama3};
const json kNull;

// A value in the file with its path, and the errors that report it.
class Node {
 public:
  Node(const json& value, std::string path, const std::string& origin)
      : value_(value), path_(std::move(path)), origin_(origin) {}

  const json& value() const { return value_; }

  [[noreturn]] void malformed(const std::string& needed) const {
    throw Error(ExitCode::data, fmt::format("{}: {} is {}; {} is needed", origin_, path_, shown(value_), needed));
  }
  // `known` completes "is X, which this program does not support (only ...)".
  [[noreturn]] void unsupported(const std::string& known) const {
    throw Error(ExitCode::data,
                fmt::format("{}: {} is {}, which this program does not support (only {}): use another tokenizer, "
                            "or train one with bpe:N",
                            origin_, path_, name(), known));
  }

  // A member, null if it is missing.
  Node operator[](const std::string& key) const {
    const auto found = value_.find(key);
    return {found == value_.end() ? kNull : *found, path_.empty() ? key : path_ + "." + key, origin_};
  }
  std::vector<Node> elements() const {
    if (!value_.is_array()) malformed("a list");
    std::vector<Node> result;
    for (size_t i = 0; i < value_.size(); ++i) result.emplace_back(value_[i], fmt::format("{}[{}]", path_, i), origin_);
    return result;
  }
  const std::string& text() const {
    if (!value_.is_string()) malformed("a string");
    return value_.get_ref<const std::string&>();
  }

  bool is_null() const { return value_.is_null(); }
  bool is_type(std::string_view type) const { return value_.is_object() && value_.value("type", json()) == type; }
  void must_be(std::initializer_list<json> values) const {
    if (std::find(values.begin(), values.end(), value_) == values.end()) unsupported(shown(*values.begin()));
  }
  // Every member must be known: one that is not could change the ids.
  void must_have_only(const std::set<std::string>& keys) const {
    if (!value_.is_object()) malformed("an object");
    for (const auto& [key, member] : value_.items()) {
      if (keys.count(key) == 0)
        Node(member, path_.empty() ? key : path_ + "." + key, origin_).unsupported("files without it");
    }
  }

 private:
  // A component's type, or the value itself.
  std::string name() const {
    const json type = value_.is_object() ? value_.value("type", json()) : json();
    return type.is_string() ? shown(type) : shown(value_);
  }

  const json& value_;
  std::string path_;
  const std::string& origin_;
};

SplitPattern pattern_of(const Node& split) {
  split.must_have_only({"type", "pattern", "behavior", "invert"});
  // The patterns match every character, so keeping the matches is the same as isolating them.
  const bool keeps_matches = split["behavior"].value() == "Removed" && split["invert"].value() == true;
  if (!keeps_matches) split["behavior"].must_be({"Isolated"});
  for (const SplitPattern pattern : kPatterns) {
    if (split["pattern"].value() == json{{"Regex", regular_expression(pattern)}}) return pattern;
  }
  split["pattern"].unsupported("the regular expressions of GPT-2, cl100k_base and Llama 3");
}

// ByteLevel alone splits as GPT-2 does; after a Split it only spells bytes.
void check_byte_level(const Node& byte_level, bool splits) {
  if (!byte_level.is_type("ByteLevel")) byte_level.unsupported("ByteLevel, or Split and ByteLevel");
  byte_level.must_have_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  byte_level["add_prefix_space"].must_be({false});
  if (!(splits && byte_level["use_regex"].is_null())) byte_level["use_regex"].must_be({splits});
}

SplitPattern split_of(const Node& pre_tokenizer) {
  if (!pre_tokenizer.is_type("Sequence")) {
    check_byte_level(pre_tokenizer, /*splits=*/true);
    return SplitPattern::gpt2;
  }
  const std::vector<Node> steps = pre_tokenizer["pretokenizers"].elements();
  for (const Node& step : steps) {
    if (!step.is_type("Split") && !step.is_type("ByteLevel")) step.unsupported("Split and ByteLevel");
  }
  if (steps.size() != 2 || !steps[0].is_type("Split"))
    pre_tokenizer["pretokenizers"].unsupported("one Split and one ByteLevel");
  check_byte_level(steps[1], /*splits=*/false);
  return pattern_of(steps[0]);
}

void check_post_processor(const Node& processor) {
  if (processor.is_null() || processor.is_type("ByteLevel") || processor.is_type("TemplateProcessing")) return;
  if (!processor.is_type("Sequence")) processor.unsupported("ByteLevel and TemplateProcessing");
  for (const Node& step : processor["processors"].elements()) {
    if (!step.is_type("ByteLevel") && !step.is_type("TemplateProcessing"))
      step.unsupported("ByteLevel and TemplateProcessing");
  }
}

struct AddedToken {
  const std::string* text;
  const json* id;
};

std::vector<AddedToken> special_tokens(const Node& list, const json& vocabulary) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  std::set<std::string_view> seen;
  const json* normalized = nullptr;
  for (const Node& entry : list.elements()) {
    entry.must_have_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    entry["special"].must_be({true});  // others are split out of plain text too
    for (const char* key : {"single_word", "lstrip", "rstrip"}) entry[key].must_be({false});
    // Without a normalizer it decides only one thing: which of two overlapping tokens is found first.
    if (normalized) entry["normalized"].must_be({*normalized});
    normalized = &entry["normalized"].value();

    const Node content = entry["content"], id = entry["id"];
    if (!seen.insert(content.text()).second) content.malformed("a token that is not listed yet");
    const auto ordinary = vocabulary.find(content.text());
    if (ordinary != vocabulary.end() && *ordinary != id.value())
      id.malformed(fmt::format("{}, as in the vocabulary,", shown(*ordinary)));
    if (!tokens.empty() && !(id.value() > *tokens.back().id)) id.malformed("an id above that of the token before");
    tokens.push_back({&content.text(), &id.value()});
  }
  return tokens;
}

void read_vocabulary(const Node& file, const std::string& origin, BpeModel& model) {
  const Node vocabulary = file["model"]["vocab"];
  if (!vocabulary.value().is_object()) vocabulary.malformed("an object of tokens and ids");
  const std::vector<AddedToken> added = special_tokens(file["added_tokens"], vocabulary.value());
  std::set<std::string_view> specials;
  size_t size = vocabulary.value().size();
  for (const AddedToken& token : added) {
    specials.insert(*token.text);
    if (!vocabulary.value().contains(*token.text)) ++size;
  }

  BpeVocabulary tokens(model, size, origin);
  for (const auto& [spelling, id] : vocabulary.value().items()) {
    if (specials.count(spelling) == 0) tokens.add(spelling, id);
  }
  for (const AddedToken& token : added) tokens.add_special(*token.text, *token.id);

  for (const Node& merge : file["model"]["merges"].elements()) {
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

}  // namespace

BpeModel read_tokenizer_json(const json& object, const std::string& origin) {
  const Node file(object, "", origin);
  file.must_have_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                       "post_processor", "decoder", "model"});
  file["version"].must_be({"1.0"});
  for (const char* key : {"normalizer", "truncation", "padding"}) file[key].must_be({nullptr});

  const Node bpe = file["model"];
  if (!bpe.is_type("BPE") && !bpe["type"].is_null()) bpe.unsupported("BPE");  // old files leave it out
  bpe.must_have_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                      "byte_fallback", "ignore_merges", "vocab", "merges"});
  bpe["dropout"].must_be({nullptr, 0.0});
  bpe["unk_token"].must_be({nullptr});
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) bpe[key].must_be({nullptr, ""});
  for (const char* key : {"fuse_unk", "byte_fallback"}) bpe[key].must_be({nullptr, false});
  bpe["ignore_merges"].must_be({nullptr, false, true});

  BpeModel model;
  model.split = split_of(file["pre_tokenizer"]);
  if (!file["decoder"].is_type("ByteLevel")) file["decoder"].unsupported("ByteLevel");
  check_post_processor(file["post_processor"]);
  model.ignore_merges = bpe["ignore_merges"].value() == true;
  read_vocabulary(file, origin, model);
  return model;
}

BpeModel parse_tokenizer_json(std::string_view text, const std::string& origin) {
  const json file = parse_vocabulary_json(text, origin);
  if (!file.is_object())
    throw Error(ExitCode::data, fmt::format("{}: the JSON is {}; an object is needed", origin, file.type_name()));
  return read_tokenizer_json(file, origin);
}

}  // namespace gpt
