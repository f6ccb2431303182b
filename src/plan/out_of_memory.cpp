#include "gpt/plan/out_of_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "gpt/batches/data_loader.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/device/memory.h"
#include "gpt/model/compile.h"
#include "gpt/plan/data_checks.h"
#include "gpt/plan/estimates.h"
#include "gpt/plan/savers.h"
#include "gpt/run/state.h"

namespace gpt::plan {
namespace {

run::Shortage shortage_of(const std::exception& error, at::Device device, const std::string& checkpoint) {
  if (const auto* known = dynamic_cast<const run::OutOfMemory*>(&error)) return known->shortage();
  run::Shortage shortage{.requested = run::requested_bytes(error.what()),
                         .free = static_cast<double>(device::free_bytes(device))};
  if (checkpoint.empty()) return shortage;
  shortage.is_saved = true;
  shortage.what_is_left = fmt::format("{} is as it was", checkpoint);
  return shortage;
}

// "A and B (about 2.1 GB)" for each way to fit into `room`.
std::vector<std::string> ways_to_fit(const PlacedRun& run, const MemoryBudget& memory, double room, bool is_saved) {
  std::vector<std::string> ways;
  for (const FittingSettings& one : find_fitting_settings(run, memory.data, room, is_saved)) {
    ways.push_back(fmt::format("{} (about {}{})", fmt::join(one.settings, " and "),
                               format_bytes(memory.program + one.bytes),
                               is_saved && !one.may_resume ? ", as a new run with --restart" : ""));
  }
  return ways;
}

std::string advice(const std::vector<std::string>& ways, double room) {
  if (!ways.empty()) return fmt::format("What would fit: {}", fmt::join(ways, ", or "));
  const bool is_model = room > 0;
  return fmt::format("{}", is_model
                               ? "No setting makes it fit: lower model.n_layer, model.n_embd or model.block_size"
                               : "The program alone takes what it may use: raise the limit (training.memory_fraction, "
                                 "ulimit, control group), or use a machine with more memory");
}

}  // namespace

std::vector<std::string> explain_shortage(const run::Shortage& shortage, const PlacedRun& run,
                                          const MemoryBudget& memory) {
  const auto& [config, device, attention] = run;
  const device::Precision precision = device::resolve_precision(config.training.precision, device);
  const ActivationForm form =
      activation_form(config.model, config.training, config.distributed, device, precision, attention);
  std::vector<std::string> lines;
  if (shortage.held) lines.push_back("Tensors held " + to_text(*shortage.held));
  if (shortage.is_taken_by_others) {
    lines.emplace_back(
        "The run fits where other programs leave it the memory: stop them, or give it a control group of its own");
    lines.push_back(shortage.what_is_left);
    return lines;
  }
  lines.push_back("The run needs " + check_memory(config.model, config.training, form, memory).detail);

  // Whatever the estimate says, it was too little for this run as it is.
  const double needed = memory.taken() + estimate_memory(config.model, config.training, form).total();
  const MemoryBudget less{.available = std::min(memory.available, needed), .program = memory.program};
  const double room = less.comfortable();
  lines.push_back(advice(ways_to_fit(run, memory, room, shortage.is_saved), room));
  lines.push_back(shortage.what_is_left);
  return lines;
}

void name_settings_that_fit(Check& memory, const PlacedRun& run, const MemoryBudget& budget) {
  const double room = budget.comfortable();
  if (memory.status != Check::Status::fail || room <= 0) return;
  const auto ways = ways_to_fit(run, budget, room, /*is_saved=*/false);
  if (!ways.empty()) memory.fix = fmt::format("set {}", fmt::join(ways, ", or "));
}

ExitCode explain_out_of_memory(const std::exception& error, const run::Setup& setup, const std::string& checkpoint) {
  Config config = setup.config;
  const data::Corpus& corpus = setup.corpus;
  const device::DeviceInfo& device = setup.device;
  const run::Shortage shortage = shortage_of(error, device.device, checkpoint);
  log::status("");
  log::error(to_text(shortage));
  device::release_unused_memory(device.device);
  MemoryBudget memory = memory_budget(device.device, config.training.allocator.memory_fraction);
  if (shortage.held) memory.data = shortage.held->data;
  const batches::DataLoader loader(corpus.sources, config.data, run::schedule_options(config, corpus), at::kCPU);
  config.training = with_real_batch(config.training, describe_data(corpus, loader));
  const std::string attention = model::attention_path(config.model, config.training.execution, device.device,
                                                      setup.precision.compute_type(), /*training=*/true);
  for (const std::string& line : explain_shortage(shortage, {config, device, attention}, memory)) log::info(line);
  return ExitCode::memory;
}

}  // namespace gpt::plan
