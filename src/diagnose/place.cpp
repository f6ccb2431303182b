#include "gpt/diagnose/place.h"

#include <string>

#include "gpt/core/processors.h"
#include "gpt/device/cards.h"
#include "gpt/device/host.h"
#include "gpt/device/precision.h"
#include "gpt/plan/card_estimate.h"
#include "gpt/plan/device_checks.h"
#include "gpt/plan/resolve.h"

namespace gpt::diagnose {
namespace {

// Whether the device has one for the run.
bool examine_precision(PrecisionConfig& precision, const PrecisionConfig& asked, const device::DeviceInfo& device,
                       plan::Checks& checks) {
  const std::string change = device::choose_again_if_missing(precision, asked, device);
  if (!change.empty())
    checks.push_back(plan::warned("precision of the run", change,
                                  "continue it on a device that has it, if its numbers must not change"));
  checks.push_back(plan::check_precision(precision, device));
  return checks.back().status != plan::Check::Status::fail;
}

std::optional<Place> examine_card(const device::Card& card, const Config& asked, const PlanOptions& options,
                                  PrecisionConfig& precision, plan::Checks& checks) {
  device::DeviceInfo device = card.describe();
  if (const auto bytes = options.memory_bytes()) device.memory_bytes = static_cast<int64_t>(*bytes);
  checks.push_back(plan::check_card(card, device));
  if (!examine_precision(precision, asked.training.precision, device, checks)) return std::nullopt;
  Place place{.device = device, .memory = plan::card_memory(device)};
  place.memory.available *= asked.training.allocator.memory_fraction;
  return place;
}

}  // namespace

std::optional<Place> examine_place(const config::CommandLine& command, const PlanOptions& options,
                                   PrecisionConfig& precision, plan::Checks& checks) {
  const Config& asked = command.config;
  if (!options.gpu.empty())
    return examine_card(device::require_card("--gpu", options.gpu), asked, options, precision, checks);
  const int64_t processes = plan::count_processes(asked), nodes = count_nodes(processors_to_run_on());
  checks.push_back(plan::check_threads(asked.threads, usable_cores(), processes));
  const device::DeviceInfo device = device::describe_device(device::select_device(asked.device).device);
  const device::DeviceInfo best =
      device.device.is_cuda() ? device : device::describe_device(device::select_device("auto").device);
  checks.push_back(plan::check_device(asked.device, device, best, host::has_nvidia_gpu()));
  if (device.device.is_cuda() && processes > device::gpu_count())
    checks.push_back(plan::lack_of_gpus(processes, device::gpu_count()));
  if (device.device.is_cpu() && nodes > 1) checks.push_back(plan::check_numa(nodes, processes));
  if (!examine_precision(precision, asked.training.precision, device, checks)) return std::nullopt;
  const double fraction = asked.training.allocator.memory_fraction;
  plan::MemoryBudget memory = plan::memory_budget(device.device, fraction);
  const double free_here = memory.available;
  if (const auto bytes = options.memory_bytes()) memory.available = *bytes * fraction;
  return Place{.device = device, .memory = plan::of_each(memory, device.device, processes), .free_here = free_here};
}

}  // namespace gpt::diagnose
