// Runs, followed live on a page, or told what to do.
#include <optional>
#include <string_view>

#include "gpt/board/command.h"
#include "gpt/board/tell_command.h"
#include "gpt/core/process.h"

namespace {

int board_main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "tell") return gpt::board::tell_command(argc - 1, argv + 1);
  const std::optional<gpt::board::BoardOptions> options = gpt::board::parse_board_options(argc, argv);
  if (!options) return 0;
  gpt::process::watch_signals();
  return gpt::board::serve_board(*options);
}

}  // namespace

int main(int argc, char** argv) { gpt::process::run(argc, argv, board_main); }
