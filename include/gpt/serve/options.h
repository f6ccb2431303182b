// The command line of gpt-serve.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/generate/loaded_model.h"

namespace gpt::serve {

constexpr const char* kApiKeyVariable = "GPT_SERVE_API_KEY";

struct ServeOptions {
  generate::ModelOptions model;
  std::vector<std::string> adapters;  // as written: NAME=PATH, or a path
  std::string host = "127.0.0.1";
  int64_t port = 8080;
  std::string api_key;  // the flag's, or the variable's; empty: none is asked for
  int64_t slots = 0;    // 0: as many as a step computes well and memory has room for
  int64_t queue = 64;
  int64_t most_tokens = 4096;
  bool strict_fields = false;
  bool ignore_tools = false;
  bool trust_markup = false;  // special tokens that are spelled out in a message are those tokens
};

// Nothing when --help or --version was answered on standard output. Throws gpt::Error(config), also for an address that other machines
// reach without an API key.
std::optional<ServeOptions> parse_serve_options(int argc, const char* const* argv);

}  // namespace gpt::serve
