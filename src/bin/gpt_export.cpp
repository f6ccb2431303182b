// Writes a trained model as other programs read it.
#include <optional>

#include "gpt/core/process.h"
#include "gpt/exchange/export.h"

namespace {

int export_main(int argc, char** argv) {
  const std::optional<gpt::exchange::ExportOptions> options = gpt::exchange::parse_export_options(argc, argv);
  if (options) gpt::exchange::export_model(*options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { gpt::process::run(argc, argv, export_main); }
