#include "gpt/run/setup.h"

#include <utility>

#include "gpt/core/error.h"
#include "gpt/data/document_mask.h"
#include "gpt/device/memory.h"
#include "gpt/run/quantized_forward.h"

namespace gpt::run {

void require_document_mask(const DataConfig& config, const Corpus& corpus, at::Device device) {
  if (!document_separator(config, corpus) || device.is_cpu()) return;
  throw Error(ExitCode::config,
              "data.document_mask: true is computed on a CPU alone so far; set it to false, or device: cpu");
}

Setup set_up(Config config, Corpus corpus, at::Device device, const PrecisionConfig& asked) {
  config.model.vocab_size = vocabulary_for(corpus, config.model.vocab_size);
  require_document_mask(config.data, corpus, device);
  configure_memory(config.training, device);
  const DeviceInfo info = describe_device(device);
  const std::string change = choose_again_if_missing(config.training.precision, asked, info);
  const Precision precision = resolve_precision(config.training.precision, info);
  require_quantized_forward(config.training, info, precision);
  apply_precision(precision, config.training.execution.deterministic);
  return {std::move(config), std::move(corpus), info, precision, change, {}};
}

Setup for_trial(Setup setup) {
  setup.config.data.stages.clear();
  setup.config.data.order = DataOrder::random;
  setup.mesh = distributed::no_mesh();
  return setup;
}

}  // namespace gpt::run
