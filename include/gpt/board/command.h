// gpt-board: its command line, and what it does with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpt::board {

constexpr const char* kTokenVariable = "GPT_BOARD_TOKEN";

struct BoardOptions {
  std::vector<std::string> folders;
  std::string host = "127.0.0.1";
  int64_t port = 8090;
  std::string token = {};  // empty: none is asked for
  bool control = false;    // pages may tell runs what to do; then there is a token
};

// Nothing when --help and the like were answered on standard output. Where other machines reach the address, or pages may tell runs what to
// do, and no token is given, there is one that nobody can guess. Throws gpt::Error(config).
std::optional<BoardOptions> parse_board_options(int argc, const char* const* argv);

// Prints the address on standard output, and serves until a signal asks to stop; returns the exit status. Throws gpt::Error.
int serve_board(const BoardOptions& options);

}  // namespace gpt::board
