// The command line of gpt-prepare.
#pragma once

#include <optional>
#include <string>

#include "gpt/prepare/prepare_options.h"

namespace gpt::prepare {

struct PrepareCommand {
  PrepareOptions options;
  std::string output_dir;
  bool list = false;  // only show what would be read
  bool json = false;  // the result on standard output
};

// Nothing when --help or --version was answered on standard output. Throws gpt::Error(config).
std::optional<PrepareCommand> parse_prepare_options(int argc, const char* const* argv);

}  // namespace gpt::prepare
