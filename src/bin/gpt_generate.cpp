// Samples text from a trained model.
#include <optional>

#include "gpt/core/process.h"
#include "gpt/generate/options.h"
#include "gpt/generate/session.h"
#include "gpt/generate/talk.h"
#include "gpt/generate/text_output.h"

namespace {

int generate_main(int argc, char** argv) {
  const std::optional<gpt::generate::GenerateOptions> options = gpt::generate::parse_generate_options(argc, argv);
  if (!options) return 0;
  gpt::process::watch_signals();
  gpt::generate::TextOutput output(options->output, options->raw);
  gpt::generate::Session session = gpt::generate::open_session(options->model);
  if (options->interactive) return gpt::generate::converse(session, *options, output);
  if (options->chat) {
    const bool asks_once = options->prompt || !options->prompt_file.empty();
    return gpt::generate::talk(session, *options,
                               asks_once ? std::optional(gpt::generate::read_prompt(*options)) : std::nullopt, output);
  }
  return gpt::generate::write_samples(session, *options, gpt::generate::read_prompt(*options), output);
}

}  // namespace

int main(int argc, char** argv) { gpt::process::run(argc, argv, generate_main); }
