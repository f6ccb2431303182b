// What is said about a finished text: to people on the log, to programs as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/generate/generator.h"

namespace gpt {

// After the first token, which has the prompt's time; nothing where too little was written to tell.
std::optional<double> tokens_per_second(const GenerationResult& result);

// One line on the log, two where context was dropped.
void report(const GenerationResult& result, uint64_t seed, int64_t block_size);

// One object in one line, with its newline; what the fields are is in gpt-generate's --help. Bytes of the prompt that are no
// UTF-8 become U+FFFD. `ascii` writes other characters as \uXXXX, so that none of them commands a terminal.
std::string json_line(const std::optional<std::string>& prompt, const GenerationResult& result, uint64_t seed,
                      bool ascii);

}  // namespace gpt
