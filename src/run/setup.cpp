#include "gpt/run/setup.h"

#include <utility>

#include "gpt/device/memory.h"

namespace gpt::run {

Setup set_up(Config config, Corpus corpus, at::Device device, const PrecisionConfig& asked) {
  config.model.vocab_size = vocabulary_for(corpus, config.model.vocab_size);
  configure_memory(config.training, device);
  const DeviceInfo info = describe_device(device);
  const std::string change = choose_again_if_missing(config.training.precision, asked, info);
  const Precision precision = resolve_precision(config.training.precision, info);
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
