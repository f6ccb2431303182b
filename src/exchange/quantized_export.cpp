#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/checkpoint/quantized_file.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/exchange/export.h"
#include "gpt/layout/parameter_table.h"

namespace gpt::exchange {
namespace {

// Makes the folder that the file will be in.
void prepare_place(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw Error(ExitCode::config,
                fmt::format("--output {}: it is a folder, and a quantized model is one file; name it, "
                            "such as {}",
                            path, (std::filesystem::path(path) / "model.pt").string()));
  if (std::filesystem::exists(path, ignored) && !checkpoint::is_quantized(path))
    throw Error(ExitCode::config,
                fmt::format("--output {}: the file is something else than a quantized model; name a new one", path));
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (!folder.empty()) create_folders(folder);
  sweep_unfinished_files(folder.empty() ? "." : folder);
}

}  // namespace

void export_quantized(const ExportOptions& options) {
  const parameters::QuantizedType type =
      options.dtype == ExportDtype::int4 ? parameters::QuantizedType::int4 : parameters::QuantizedType::int8;
  prepare_place(options.output);
  checkpoint::Checkpoint checkpoint = load_weights(options);
  checkpoint::QuantizedFile model{.config = checkpoint.config,
                                  .tensors = model::quantize(checkpoint.config.model,
                                                             std::exchange(checkpoint.model, {}), type),
                                  .tokenizer = checkpoint.tokenizer,
                                  .step = checkpoint.step,
                                  .sample_start = checkpoint.sample_start,
                                  .text_format = checkpoint.text_format};
  checkpoint::write_quantized(options.output, model);
  log::success(fmt::format("{}: {} parameters in {}, {} of weights", options.output,
                           format_count(static_cast<double>(layout::parameter_count(model.config.model))),
                           name_of(type), format_bytes(static_cast<double>(model.tensors.bytes()))));
}

}  // namespace gpt::exchange
