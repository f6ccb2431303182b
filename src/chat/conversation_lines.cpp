#include "gpt/chat/conversation_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/printable.h"

namespace gpt::chat {
namespace {

using nlohmann::json;

constexpr std::array kShapes = {ConversationShape::messages, ConversationShape::sharegpt, ConversationShape::alpaca,
                                ConversationShape::prompt};

[[noreturn]] void refuse_line(const std::string& why) { throw Error(ExitCode::data, why); }

// The fields that make a line one of the shape.
std::vector<std::string> fields_of(ConversationShape shape) {
  switch (shape) {
    case ConversationShape::messages: return {"messages"};
    case ConversationShape::prompt: return {"prompt", "completion"};
    case ConversationShape::alpaca: return {"instruction", "output"};
    case ConversationShape::sharegpt: return {"conversations"};
  }
  return {};
}

bool has_shape(const json& line, ConversationShape shape) {
  const std::vector<std::string> fields = fields_of(shape);
  return std::all_of(fields.begin(), fields.end(), [&](const std::string& field) { return line.contains(field); });
}

std::string with_article(const json& value) {
  switch (value.type()) {
    case json::value_t::null: return "null";
    case json::value_t::boolean: return "true or false";
    case json::value_t::object: return "an object";
    case json::value_t::array: return "a list";
    case json::value_t::string: return "a string";
    default: return "a number";
  }
}

std::string text_in(const json& object, const char* field, const std::string& where) {
  const auto found = object.find(field);
  if (found == object.end()) refuse_line(fmt::format("{}there is no '{}'", where, field));
  if (!found->is_string())
    refuse_line(fmt::format("{}'{}' is {}; a string is needed, since only texts are learned", where, field,
                            with_article(*found)));
  return found->get<std::string>();
}

// As ShareGPT names who speaks.
std::string role_of(const std::string& speaker, const std::string& where) {
  if (speaker == "human" || speaker == kUser) return kUser;
  if (speaker == "gpt" || speaker == kAssistant) return kAssistant;
  if (speaker == kSystem) return kSystem;
  refuse_line(fmt::format("{}'from' is \"{}\"; human, user, gpt, assistant or system is needed", where,
                          shortened(printable_line(speaker), 40)));
}

// What stands beside the words of a message and would be lost.
void refuse_calls(const json& message, const std::string& where) {
  for (const char* field : {"tool_calls", "function_call"}) {
    const auto found = message.find(field);
    if (found != message.end() && !found->is_null() && !found->empty())
      refuse_line(fmt::format("{}it has '{}', which is not learned; leave such conversations out", where, field));
  }
}

Dialogue read_list(const json& list, ConversationShape shape) {
  const std::string field = name_of(shape);
  if (!list.is_array()) refuse_line(fmt::format("'{}' is {}; a list is needed", field, with_article(list)));
  const bool is_sharegpt = shape == ConversationShape::sharegpt;
  Dialogue dialogue;
  for (const json& item : list) {
    const std::string where = fmt::format("'{}', item {}: ", field, dialogue.size() + 1);
    if (!item.is_object()) refuse_line(fmt::format("{}it is {}; an object is needed", where, with_article(item)));
    refuse_calls(item, where);
    Message message{text_in(item, is_sharegpt ? "from" : "role", where),
                    text_in(item, is_sharegpt ? "value" : "content", where)};
    if (is_sharegpt) message.role = role_of(message.role, where);
    dialogue.push_back(std::move(message));
  }
  return dialogue;
}

Dialogue read_alpaca(const json& line) {
  std::string asked = text_in(line, "instruction", "");
  const auto input = line.find("input");
  const std::string more = input == line.end() || input->is_null() ? "" : text_in(line, "input", "");
  if (!more.empty()) asked += "\n\n" + more;
  return {{kUser, asked}, {kAssistant, text_in(line, "output", "")}};
}

}  // namespace

const char* name_of(ConversationShape shape) {
  switch (shape) {
    case ConversationShape::messages: return "messages";
    case ConversationShape::prompt: return "prompt";
    case ConversationShape::alpaca: return "instruction";
    case ConversationShape::sharegpt: return "conversations";
  }
  return "";
}

std::optional<ConversationShape> shape_of(const json& line, const std::string& text_field) {
  if (!line.is_object() || line.contains(text_field)) return std::nullopt;
  for (const ConversationShape shape : kShapes)
    if (has_shape(line, shape)) return shape;
  return std::nullopt;
}

Dialogue read_conversation(const json& line, ConversationShape shape) {
  if (!line.is_object()) refuse_line("a JSON object is needed");
  for (const std::string& field : fields_of(shape)) {
    if (line.contains(field)) continue;
    const auto other = shape_of(line, /*text_field=*/"");
    refuse_line(fmt::format(
        "there is no '{}', and the first line of the input is a conversation with '{}'{}; keep the lines of "
        "one kind in a file of their own",
        field, name_of(shape), other ? fmt::format(" (this one has '{}')", name_of(*other)) : ""));
  }
  switch (shape) {
    case ConversationShape::messages: return read_list(line["messages"], shape);
    case ConversationShape::sharegpt: return read_list(line["conversations"], shape);
    case ConversationShape::prompt:
      return {{kUser, text_in(line, "prompt", "")}, {kAssistant, text_in(line, "completion", "")}};
    case ConversationShape::alpaca: return read_alpaca(line);
  }
  return {};
}

}  // namespace gpt::chat
