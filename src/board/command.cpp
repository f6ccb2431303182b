#include "gpt/board/command.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>

#include "gpt/board/board.h"
#include "gpt/board/site.h"
#include "gpt/config/arguments.h"
#include "gpt/core/error.h"
#include "gpt/core/host_name.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/process.h"
#include "gpt/http/server.h"

namespace gpt::board {
namespace {

constexpr const char* kBoardExamples = R"(  gpt-board models/mine
  gpt-board models --port 9000
  gpt-board tell models/mine pause
  gpt-board models --host 0.0.0.0
  ssh -L 8090:127.0.0.1:8090 MACHINE          (on the other device, whose browser then opens http://127.0.0.1:8090/)
)";

constexpr const char* kBoardEnding =
    R"(A folder is that of a run, or holds those of runs; new ones appear as they come. Runs may be going on, done or killed: nothing is written to them. gpt-train --live does the same for its own run, and ends with it.

gpt-board tell FOLDER VERB tells a run what to do, such as to pause; gpt-board tell --help lists the verbs.

What is served
  /           the run, or a table of all runs whose curves can be laid over each other
  /metrics    the runs in the text format of Prometheus

An address that other machines reach has a token, which is in the address that is printed; Prometheus may send it as 'Authorization: Bearer TOKEN'.

Exit status
  0 after --help or --version, 2 wrong usage, or an address that cannot be had; 130, 143 or 129 after Ctrl-C, SIGTERM or SIGHUP
)";

std::vector<config::Section> board_sections(BoardOptions& options) {
  return {
      {"Address",
       {{.name = "host",
         .target = &options.host,
         .help = "the address to listen at; at one that other machines reach, such as 0.0.0.0, a token is asked for"},
        {.name = "port", .target = &options.port, .help = "0 = any that is free", .min = 0, .max = 65535},
        {.name = "token",
         .target = &options.token,
         .help =
             "what the address has to end with, as ?token=TOKEN; the variable GPT_BOARD_TOKEN hides it from the "
             "list of processes; without either, one is made up where other machines reach the address, or with --control"}}},
      {"Control",
       {config::switch_row(
           "control", options.control,
           "let pages tell runs what to do, such as to pause; those that were started with --control")}}};
}

std::string random_token() {
  unsigned char bytes[24];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw Error(ExitCode::failed_check, "the system has no random bytes for a token: give one with --token");
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

void check(const BoardOptions& options, bool was_token_given) {
  if (options.folders.empty())
    throw Error(ExitCode::config, "name the folder of a run, such as models/NAME, or one that holds several");
  for (const std::string& folder : options.folders) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(folder, ignored))
      throw Error(ExitCode::config, fmt::format("{}: {}; name the output_dir of a run, such as models/NAME", folder,
                                                std::filesystem::exists(folder, ignored) ? "it is not a folder"
                                                                                         : "there is no such folder"));
  }
  const auto is_plain = [](char c) { return c > ' ' && c < 0x7F && c != '&' && c != '#' && c != '%' && c != '+'; };
  if (was_token_given && (options.token.empty() || !std::all_of(options.token.begin(), options.token.end(), is_plain)))
    throw Error(ExitCode::config, "the token must consist of letters, digits and signs that an address may have");
}

std::string without_end(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

// As another program, or a person, reaches it.
std::string address_of(const BoardOptions& options, uint16_t port) {
  const bool is_everywhere = options.host == "0.0.0.0" || options.host == "::";
  const std::string host = is_everywhere ? host_name() : options.host;
  return fmt::format("http://{}:{}/{}", host.find(':') != std::string::npos ? "[" + host + "]" : host, port,
                     options.token.empty() ? "" : "?token=" + options.token);
}

}  // namespace

std::optional<BoardOptions> parse_board_options(int argc, const char* const* argv) {
  BoardOptions options;
  if (const char* const token = std::getenv(kTokenVariable)) options.token = token;
  bool is_token_given = !options.token.empty();
  const std::vector<config::Section> rows = board_sections(options);
  const auto arguments =
      config::parse_arguments({.name = "gpt-board",
                               .description = "Shows runs of gpt-train on a page, as they go.",
                               .usage = "FOLDER... [--FLAG VALUE ...]",
                               .sections = rows,
                               .guide = {.first = {"port", "host"}, .examples = kBoardExamples, .ending = kBoardEnding},
                               .takes_words = true},
                              argc, argv);
  if (!arguments) return std::nullopt;
  const config::Origins given = config::apply_settings(arguments->settings, config::rows_of(rows));
  for (const std::string& folder : arguments->words) options.folders.push_back(without_end(folder));
  is_token_given = is_token_given || given.count("token") > 0;
  check(options, is_token_given);
  if (options.token.empty() && (options.control || !http::is_loopback(options.host))) options.token = random_token();
  return options;
}

int serve_board(const BoardOptions& options) {
  Board board(options.folders, options.control);
  Site site(board, options.token);
  http::Server server(options.host, static_cast<uint16_t>(options.port), {}, site);
  log::info("Following the runs until Ctrl-C, at");
  print(address_of(options, server.port()) + "\n");
  while (process::stop_signal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  server.stop_accepting();
  board.stop();
  server.stop();
  return static_cast<int>(process::stop_code());
}

}  // namespace gpt::board
