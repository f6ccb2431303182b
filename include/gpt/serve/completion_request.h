// The body of POST /v1/completions, checked field by field. What would change the answer and is not supported is refused by its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpt/serve/answer_request.h"

namespace gpt::serve {

struct CompletionRequest : AnswerRequest {
  std::vector<std::variant<std::string, std::vector<int32_t>>> prompts;  // text or ids, at least one
  bool echo = false;
  std::optional<int64_t>
      prompt_tokens;  // how many of the last tokens of a prompt count; -1: as many as the context holds
};

// Throws ApiError naming the first field at fault.
CompletionRequest parse_completion_request(std::string_view body, const CompletionRules& rules);

}  // namespace gpt::serve
