// Samples text from a trained model.
#include <optional>

#include "gpt/core/process.h"
#include "gpt/generate/options.h"
#include "gpt/generate/session.h"
#include "gpt/generate/talk.h"
#include "gpt/generate/text_output.h"

namespace {

int generate_main(int argc, char** argv) {
  const std::optional<gpt::GenerateOptions> options = gpt::parse_generate_options(argc, argv);
  if (!options) return 0;
  gpt::process::watch_signals();
  gpt::TextOutput output(options->output, options->raw);
  gpt::Session session = gpt::open_session(options->model);
  if (options->interactive) return gpt::converse(session, *options, output);
  if (options->chat) {
    const bool asks_once = options->prompt || !options->prompt_file.empty();
    return gpt::talk(session, *options, asks_once ? std::optional(gpt::read_prompt(*options)) : std::nullopt, output);
  }
  return gpt::write_samples(session, *options, gpt::read_prompt(*options), output);
}

}  // namespace

int main(int argc, char** argv) { gpt::process::run(argc, argv, generate_main); }
