#include "gpt/run/setup.h"

#include <utility>

#include "gpt/device/host.h"
#include "gpt/device/memory.h"
#include "gpt/train/announce.h"

namespace gpt::run {

Setup prepare_run(Config config, Corpus corpus, const DeviceChoice& choice, const PrecisionConfig& asked) {
  configure_memory(config.training, choice.device);
  const DeviceInfo device = describe_device(choice.device);
  announce_device(device, choice, host::has_nvidia_gpu());
  adapt_dtype(config.training.precision, asked, device);
  const Precision precision = resolve_precision(config.training.precision, device);
  apply_precision(precision, config.training.execution.deterministic);
  return {std::move(config), std::move(corpus), device, precision};
}

}  // namespace gpt::run
