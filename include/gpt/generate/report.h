// What is said about a finished text: to people on the log, to programs as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/generate/generator.h"

namespace gpt::generate {

// The speed after the first token, which has the prompt's time; nothing where too little was written to tell.
std::optional<double> tokens_per_second(const GenerationResult& result);

// "Seed 7: 200 tokens in 1.2 s (167 tokens/s), prompt of 5 tokens in 3 ms; ended at --max-new-tokens"
std::string describe(const GenerationResult& result, uint64_t seed);

// Puts that on the log after each text, unless it is to be brief, and once for all of them that the model's context was too short.
class GenerationReport {
 public:
  GenerationReport(int64_t block_size, bool is_brief) : block_size_(block_size), is_brief_(is_brief) {}
  void operator()(const GenerationResult& result, uint64_t seed);

 private:
  const int64_t block_size_;
  const bool is_brief_;
  bool has_outgrown_ = false;  // a text, and it was said
};

// One object in one line, with its newline; what the fields are is in gpt-generate's --help. Bytes of the prompt that are no
// UTF-8 become U+FFFD. `ascii` writes other characters as \uXXXX, so that none of them commands a terminal.
std::string json_line(const std::optional<std::string>& prompt, const GenerationResult& result, uint64_t seed,
                      bool ascii);

}  // namespace gpt::generate
