// Serves a trained model over HTTP.
#include <optional>

#include "gpt/core/process.h"
#include "gpt/serve/options.h"
#include "gpt/serve/serve.h"

namespace {

int serve_main(int argc, char** argv) {
  const std::optional<gpt::serve::ServeOptions> options = gpt::serve::parse_serve_options(argc, argv);
  if (!options) return 0;
  gpt::process::watch_signals();
  return gpt::serve::serve(*options);
}

}  // namespace

int main(int argc, char** argv) { gpt::process::run(argc, argv, serve_main); }
