// Measures how well a trained model does.
#include <optional>

#include "gpt/core/process.h"
#include "gpt/evaluate/command.h"
#include "gpt/evaluate/options.h"

namespace {

int eval_main(int argc, char** argv) {
  const std::optional<gpt::evaluate::EvalOptions> options = gpt::evaluate::parse_eval_options(argc, argv);
  if (!options) return 0;
  gpt::process::watch_signals();
  return gpt::evaluate::evaluate_inputs(*options);
}

}  // namespace

int main(int argc, char** argv) { gpt::process::run(argc, argv, eval_main); }
