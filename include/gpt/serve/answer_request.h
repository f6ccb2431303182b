// What requests for completions and for chats have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/generate/sampling_config.h"

namespace gpt::serve {

inline constexpr int64_t kMostLogprobs = 20;  // top logprobs for each token
inline constexpr int64_t kMostChoices = 128;  // texts of one request, over all its prompts
inline constexpr size_t kMostStops = 4;

struct AnswerRequest {
  size_t model = 0;                   // a place in CompletionRules::models
  generate::SamplingConfig sampling;  // with a seed that nobody knows before where none was given
  int64_t n = 1;                      // texts for each prompt
  std::optional<int64_t> logprobs;    // how many of the likeliest tokens are told beside each one
  bool stream = false;
  bool include_usage = false;     // at the end of a stream
  bool continuous_usage = false;  // in each piece of a stream
  bool ignores_end = false;       // a text goes on where the model would end it

  struct LeftOut {
    std::string field;
    bool is_known;  // as one that changes nothing
  };
  std::vector<LeftOut> left_out;
};

struct CompletionRules {
  std::vector<std::string> models;  // their names: first the model's own, which is meant where none is named
  int64_t most_tokens = 4096;       // the largest max_tokens
  bool strict_fields = false;       // a field that nobody knows is refused
  bool ignore_tools = false;        // a model that is offered tools answers without them
};

// The place of the model that is wanted. Throws ApiError where there is none of this name.
size_t find_model(const std::string& wanted, const std::vector<std::string>& models);

}  // namespace gpt::serve
