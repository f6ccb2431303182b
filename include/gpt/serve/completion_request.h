// The body of POST /v1/completions, checked field by field. What would change the answer and is not supported is refused by its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpt/generate/sampling_config.h"

namespace gpt::serve {

inline constexpr int64_t kMostLogprobs = 20;  // top logprobs for each token
inline constexpr int64_t kMostChoices = 128;  // texts of one request, over all its prompts
inline constexpr size_t kMostStops = 4;

struct CompletionRequest {
  std::vector<std::variant<std::string, std::vector<int32_t>>> prompts;  // text or ids, at least one
  SamplingConfig sampling;          // with a seed that nobody knows before where none was given
  int64_t n = 1;                    // texts for each prompt
  std::optional<int64_t> logprobs;  // how many of the likeliest tokens are told beside each one
  bool echo = false;
  bool stream = false;
  bool include_usage = false;  // at the end of a stream
};

// `model`: the name of the only one; `most_tokens`: the largest max_tokens. Throws ApiError naming the first field at fault.
CompletionRequest parse_completion_request(std::string_view body, const std::string& model, int64_t most_tokens);

}  // namespace gpt::serve
