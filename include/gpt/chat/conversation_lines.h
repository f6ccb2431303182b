// A line of a file of conversations, in the shapes that are usual, to the dialogue that it holds.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gpt/chat/dialogue.h"

namespace gpt::chat {

enum class ConversationShape {
  messages,  // {"messages": [{"role", "content"}]}
  prompt,    // {"prompt", "completion"}
  alpaca,    // {"instruction", "output"}, and "input", which may be missing
  sharegpt,  // {"conversations": [{"from", "value"}]}
};
const char* name_of(ConversationShape shape);  // its field: "messages", "prompt", "instruction", "conversations"

// The shape of what a line holds. Nothing for what has `text_field`, which is a text whatever else it has, and for all other lines.
std::optional<ConversationShape> shape_of(const nlohmann::json& line, const std::string& text_field);

// Throws gpt::Error(data) that says what is wrong with the line, or what it lacks.
Dialogue read_conversation(const nlohmann::json& line, ConversationShape shape);

}  // namespace gpt::chat
