#include "gpt/chat/dialogue.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gpt::chat {

nlohmann::ordered_json as_json(const Dialogue& dialogue) {
  auto messages = nlohmann::ordered_json::array();
  for (const Message& message : dialogue) messages.push_back({{"role", message.role}, {"content", message.content}});
  return {{"messages", messages}};
}

bool drop_oldest_turn(Dialogue& dialogue) {
  const auto asks = [](const Message& message) { return message.role == kUser; };
  const auto first = std::find_if(dialogue.begin(), dialogue.end(), [](const Message& m) { return m.role != kSystem; });
  if (first == dialogue.end()) return false;
  const auto next = std::find_if(first + 1, dialogue.end(), asks);
  if (next == dialogue.end()) return false;
  dialogue.erase(first, next);
  return true;
}

}  // namespace gpt::chat
