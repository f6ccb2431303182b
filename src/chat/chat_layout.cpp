#include "gpt/chat/chat_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "gpt/chat/chat_template.h"
#include "gpt/chat/named_templates.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/tokenizer/special_tokens.h"

namespace gpt::chat {
namespace {

// What begins and ends turns, or parts of them, in the templates of the families.
constexpr std::array kTokensOfTurns = {"<|im_start|>",      "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
                                       "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>",   "<end_of_turn>"};
constexpr const char* kEndOfText = "</s>";  // of a tokenizer that has none

std::vector<std::string> missing_tokens(const std::string& source, const tokenizer::TextFormat& format,
                                        const tokenizer::Tokenizer& tokenizer) {
  const auto names = [&](const char* text) { return source.find(text) != std::string::npos; };
  std::vector<std::string> missing;
  for (const char* token : kTokensOfTurns)
    if (names(token) && !tokenizer::has_special_token(tokenizer, token)) missing.emplace_back(token);
  if (names("eos_token") && !format.end()) missing.emplace_back(kEndOfText);
  return missing;
}

}  // namespace

std::string template_source(const std::string& name) {
  for (const NamedTemplate& known : named_templates())
    if (known.name == name) return std::string(known.source);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(name, ignored)) {
    std::vector<std::string_view> names;
    for (const NamedTemplate& known : named_templates()) names.push_back(known.name);
    throw Error(ExitCode::config,
                fmt::format("chat template '{}': it is no file, and none of {}", name, fmt::join(names, ", ")));
  }
  constexpr SizeLimit kTemplateSize{"a chat template", 1 << 20};
  return read_file(name, ExitCode::config, kTemplateSize);
}

ChatLayout lay_out(std::string source, tokenizer::TextFormat format,
                   std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  ChatLayout layout{.format = tokenizer::text_format_of(format, *tokenizer),
                    .tokenizer = std::move(tokenizer),
                    .added = {}};
  if (source == format.chat_template) return layout;
  layout.added = missing_tokens(source, layout.format, *layout.tokenizer);
  if (!layout.added.empty()) layout.tokenizer = tokenizer::with_special_tokens(*layout.tokenizer, layout.added);
  layout.format = tokenizer::text_format_of(format, *layout.tokenizer);
  layout.format.chat_template = std::move(source);
  layout.format.ends = ChatTemplate(layout.format.chat_template, layout.format, *layout.tokenizer).ends();
  return layout;
}

ChatLayout lay_out_as(const std::string& name, const tokenizer::TextFormat& format,
                      std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  if (name != kOwnTemplate) return lay_out(template_source(name), format, std::move(tokenizer));
  return lay_out(format.chat_template.empty() ? kChatMl : format.chat_template, format, std::move(tokenizer));
}

}  // namespace gpt::chat
