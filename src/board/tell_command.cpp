#include "gpt/board/tell_command.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "gpt/config/arguments.h"
#include "gpt/control/tell.h"
#include "gpt/core/error.h"
#include "gpt/core/printable.h"

namespace gpt::board {
namespace {

constexpr const char* kTellExamples = R"(  gpt-board tell models/mine pause
  gpt-board tell models/mine rate 0.5
  gpt-board tell models/mine longer 1000
)";

std::string ending() {
  return fmt::format(
      R"(The run has been started with --control. It does what it is told between two updates, and says so then. What changes its numbers stands in its decisions.jsonl, with which gpt-train --replay repeats it.

Verbs
{}
Exit status
  0 done, 1 the run refuses, or none listens there, 2 wrong usage
)",
      control::verbs_for_people());
}

}  // namespace

int tell_command(int argc, const char* const* argv) {
  const auto arguments = config::parse_arguments({.name = "gpt-board tell",
                                                  .description = "Tells a run of gpt-train what to do, as it goes.",
                                                  .usage = "FOLDER VERB [VALUE]",
                                                  .sections = {},
                                                  .guide = {.examples = kTellExamples, .ending = ending()},
                                                  .takes_words = true},
                                                 argc, argv);
  if (!arguments) return 0;
  const std::vector<std::string>& words = arguments->words;
  if (words.size() < 2 || words.size() > 3)
    throw Error(ExitCode::config,
                "gpt-board tell needs a folder and a verb, such as gpt-board tell models/mine pause; "
                "gpt-board tell --help lists the verbs");
  const auto request = control::request_of(words[1], words.size() == 3 ? std::optional(words[2]) : std::nullopt);
  const control::Answer answer = control::tell(words[0], request);
  if (!answer.is_done) throw Error(ExitCode::failed_check, fmt::format("{}: {}", words[0], answer.said));
  print(printable_line(answer.said) + "\n");
  return 0;
}

}  // namespace gpt::board
