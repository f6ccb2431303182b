#include "gpt/tokenizer/text_format.h"

#include <nlohmann/json.hpp>

namespace gpt::tokenizer {
namespace {

using nlohmann::ordered_json;

constexpr const char *kEnds = "eos_token_id", *kPrefix = "prefix_token_ids", *kChatTemplate = "chat_template";

// Calls visit(name, member) for each that is one token or none.
template <typename AnyFormat, typename Visitor>
void visit_tokens(AnyFormat& format, const Visitor& visit) {
  visit("bos_token_id", format.begin);
  visit("pad_token_id", format.pad);
  visit("unk_token_id", format.unknown);
  visit("tokenizer_eos_token_id", format.tokenizer_end);
}

}  // namespace

std::optional<int32_t> TextFormat::end() const {
  if (tokenizer_end) return tokenizer_end;
  return ends.empty() ? std::nullopt : std::optional(ends.front());
}

std::vector<int32_t> TextFormat::ids() const {
  std::vector<int32_t> all = ends;
  all.insert(all.end(), prefix.begin(), prefix.end());
  visit_tokens(*this, [&](const char*, const std::optional<int32_t>& id) {
    if (id) all.push_back(*id);
  });
  return all;
}

TextFormat format_by_names(const Tokenizer& tokenizer) {
  TextFormat format;
  const std::optional<int32_t> begin = tokenizer.begin_of_text(), end = tokenizer.end_of_text();
  format.begin = begin ? begin : end;  // a text begins where another one has ended
  if (end) format.ends = {*end};
  return format;
}

TextFormat text_format_of(const std::optional<TextFormat>& known, const Tokenizer& tokenizer) {
  const TextFormat named = format_by_names(tokenizer);
  if (!known) return named;
  TextFormat format = *known;
  if (!format.begin) format.begin = named.begin;
  if (format.ends.empty()) format.ends = named.ends;
  return format;
}

void to_json(ordered_json& json, const TextFormat& format) {
  json = ordered_json::object();
  visit_tokens(format, [&](const char* name, const std::optional<int32_t>& id) {
    if (id) json[name] = *id;
  });
  if (!format.ends.empty()) json[kEnds] = format.ends;
  if (!format.prefix.empty()) json[kPrefix] = format.prefix;
  if (!format.chat_template.empty()) json[kChatTemplate] = format.chat_template;
}

void from_json(const ordered_json& json, TextFormat& format) {
  format = {};
  visit_tokens(format, [&](const char* name, std::optional<int32_t>& id) {
    if (json.contains(name)) id = json.at(name).get<int32_t>();
  });
  if (json.contains(kEnds)) json.at(kEnds).get_to(format.ends);
  if (json.contains(kPrefix)) json.at(kPrefix).get_to(format.prefix);
  if (json.contains(kChatTemplate)) json.at(kChatTemplate).get_to(format.chat_template);
}

}  // namespace gpt::tokenizer
