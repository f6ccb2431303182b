// The command line of gpt-generate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/generate/loaded_model.h"
#include "gpt/generate/sampling_config.h"

namespace gpt::generate {

struct GenerateOptions {
  ModelOptions model;
  // An argument or --prompt. "-" is standard input, which also serves when no prompt is named and it is no terminal.
  std::optional<std::string> prompt;
  std::string prompt_file;
  bool interactive = false;
  bool chat = false;
  std::string system;         // what the system says in a chat; empty: nothing
  std::string chat_template;  // a name or a file, instead of the model's
  bool trust_markup = false;  // special tokens that are spelled out in a message are those tokens
  SamplingConfig sampling;    // with a seed that nobody knows before where none was given
  int64_t num_samples = 1;
  std::string output;        // a file instead of standard output; empty = none
  bool json = false;         // one object per sample and line
  bool verbose = false;      // statistics after each text of a conversation too
  bool raw = false;          // control characters reach a terminal as they are
  bool hide_prompt = false;  // otherwise it stands before its continuation
};

// Nothing when --help or --version was answered on standard output. Throws gpt::Error(config).
std::optional<GenerateOptions> parse_generate_options(int argc, const char* const* argv);

// The prompt that the options name, read now, as gpt/prepare/plain_text.h reads text. A file and standard input lose one final
// newline: editors and `echo` put it there. Throws gpt::Error(data) when it cannot be read.
std::string read_prompt(const GenerateOptions& options);

}  // namespace gpt::generate
