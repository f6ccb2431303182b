// Sampling text from a model with a KV cache. Beyond block_size the last half of the context is kept and prefilled again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/model/gpt.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt {

struct SamplingConfig {
  double temperature = 1.0;  // 0 = greedy
  int64_t top_k = 0;         // 0 = off
  double top_p = 1.0;        // 1 = off
  int64_t max_new_tokens = 200;
  uint64_t seed = 1337;
  std::vector<std::string> stop;  // texts that end the sample (not printed)
};

struct GenerationResult {
  std::string text;             // without the prompt
  int64_t new_tokens = 0;
  int64_t cropped_tokens = 0;   // tokens that fell out of the context, prompt and generated
  double seconds = 0;           // prefill and decoding
  std::string stop_reason;      // "length", "stop text", "end of text", "interrupted"
};

// Streams whole UTF-8 characters to `emit` as they are complete. `emit` returns false to stop. Draws from its own
// generator, so training's random stream is untouched; restores the model's training mode.
GenerationResult generate(GPT& model, const Tokenizer& tokenizer, std::string_view prompt, const SamplingConfig& config,
                          at::ScalarType compute_type, const std::function<bool(std::string_view)>& emit = {});

}  // namespace gpt
