// How text is drawn from a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/option.h"
#include "gpt/generate/prompt.h"

namespace gpt::generate {

struct SamplingConfig {
  double temperature = 1.0;         // 0 = greedy
  int64_t top_k = 0;                // 0 = off
  double top_p = 1.0;               // 1 = off
  double min_p = 0.0;               // 0 = off
  double repetition_penalty = 1.0;  // the penalty on tokens in the context; 1 = off
  int64_t max_new_tokens = 200;
  uint64_t seed = 1337;
  std::vector<std::string> stop = {};  // UTF-8 texts that end the sample (not printed)
  PromptStart start = {};              // what prompts begin with
  std::vector<int32_t> ends = {};      // tokens that end the sample; empty = the tokenizer's end of text
};

std::vector<config::Option> options(SamplingConfig& config);

// Throws gpt::Error(config) naming the first value out of its range.
void validate(const SamplingConfig& config);

}  // namespace gpt::generate
