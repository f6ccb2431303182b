// Runs, followed live on a page.
#include <optional>

#include "gpt/board/command.h"
#include "gpt/core/process.h"

namespace {

int board_main(int argc, char** argv) {
  const std::optional<gpt::board::BoardOptions> options = gpt::board::parse_board_options(argc, argv);
  if (!options) return 0;
  gpt::process::watch_signals();
  return gpt::board::serve_board(*options);
}

}  // namespace

int main(int argc, char** argv) { return gpt::process::run(argc, argv, board_main); }
