#include "gpt/checkpoint/averages.h"

#include <fmt/format.h>

#include <map>

#include "gpt/checkpoint/adapters.h"
#include "gpt/core/error.h"
#include "parts.h"

namespace gpt::checkpoint {

void take_averages(Checkpoint& checkpoint, const std::string& path) {
  const parameters::NamedTensors& averages = checkpoint.optimizer.slot(optim::kAverageSlot);
  if (averages.empty())
    throw Error(ExitCode::checkpoint,
                fmt::format("{} has no averages of its weights, which a run keeps with training.ema_decay", path));
  const std::map<std::string, at::Tensor> of_name(averages.begin(), averages.end());
  for (auto& [name, value] : checkpoint.model)
    if (const auto found = of_name.find(name); found != of_name.end()) value = found->second;
}

Checkpoint load_averages(const std::string& path, Parts parts) {
  Checkpoint checkpoint = checkpoint::load_in_full(path);
  take_averages(checkpoint, path);
  if (parts == Parts::model) merge_adapters(checkpoint);
  if (parts != Parts::all) checkpoint.optimizer = {};
  return checkpoint;
}

}  // namespace gpt::checkpoint
