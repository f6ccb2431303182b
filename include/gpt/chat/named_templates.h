// The templates that have names: what the families of models write that learned in them.
#pragma once

#include <array>
#include <string_view>

namespace gpt::chat {

// Each turn is between <|im_start|> and <|im_end|>.
extern const char* const kChatMl;

struct NamedTemplate {
  std::string_view name, source;
};

inline constexpr size_t kNamedTemplates = 6;
const std::array<NamedTemplate, kNamedTemplates>& named_templates();

}  // namespace gpt::chat
