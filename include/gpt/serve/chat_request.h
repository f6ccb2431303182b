// The body of POST /v1/chat/completions, checked field by field. What would change the answer and is not supported is refused by its name.
#pragma once

#include <string_view>

#include "gpt/chat/dialogue.h"
#include "gpt/serve/answer_request.h"

namespace gpt::serve {

struct ChatRequest : AnswerRequest {
  chat::Dialogue dialogue;  // of system, user and assistant, at least one message
};

// Throws ApiError naming the first field at fault.
ChatRequest parse_chat_request(std::string_view body, const CompletionRules& rules);

}  // namespace gpt::serve
