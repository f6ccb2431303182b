// The command line of gpt-prune.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/prune/amounts.h"

namespace gpt::prune {

enum class Choice { importance, random };

struct PruneOptions {
  std::string checkpoint;  // a file
  Amounts amounts;
  Choice choice = Choice::importance;
  int64_t seed = 1;  // of a random choice
  std::string data;  // a text, as PrepareOptions::inputs, or a bin
  std::string text_field = "text";
  int64_t sequences = 128;
  std::string output;  // a file
  bool json = false;   // the result, in place of a table
  std::string device = "auto";
  int64_t threads = 0;  // CPU threads; 0 = all cores
};

// Nothing when --help or --version was answered on standard output. Throws gpt::Error(config).
std::optional<PruneOptions> parse_prune_options(int argc, const char* const* argv);

}  // namespace gpt::prune
