// What has been said, turn by turn.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gpt::chat {

inline constexpr const char *kSystem = "system", *kUser = "user", *kAssistant = "assistant";

struct Message {
  std::string role, content;
  std::vector<int32_t> ids = {};  // what an answer was drawn as; without them its content is encoded
  bool operator==(const Message&) const = default;
};
using Dialogue = std::vector<Message>;

// What becomes of a special token that is spelled out in a message. Trusted, it is that token, as transformers has it.
enum class Markup { text, trusted };

// {"messages": [{"role", "content"}]}, without ids: a line of a file of conversations.
nlohmann::ordered_json as_json(const Dialogue& dialogue);

// The oldest question and what follows it, up to the next one. Those of the system stay. False where there is no more than one question.
bool drop_oldest_turn(Dialogue& dialogue);

}  // namespace gpt::chat
