// Makes a smaller model of a trained one.
#include <optional>

#include "gpt/core/process.h"
#include "gpt/prune/command.h"

namespace {

int prune_main(int argc, char** argv) {
  const std::optional<gpt::prune::PruneOptions> options = gpt::prune::parse_prune_options(argc, argv);
  if (options) gpt::prune::prune_checkpoint(*options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { gpt::process::run(argc, argv, prune_main); }
