#include "gpt/train/efficiency.h"

#include <fmt/format.h>

#include <exception>

#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/plan/limits.h"

namespace gpt {

std::optional<EfficiencyRecord> measure_efficiency(const run::Setup& setup, const TimingRecord& steps,
                                                   double run_seconds) {
  constexpr double kShortest = 30;
  if (run_seconds < kShortest || steps.steps == 0) return std::nullopt;
  const auto count = static_cast<double>(steps.steps);
  const auto work = plan::work_of_step(setup.config.model, setup.config.training, setup.precision,
                                       /*tokens=*/static_cast<double>(steps.tokens) / count /
                                           static_cast<double>(setup.mesh.all->size()));
  try {
    const plan::MachineSpeed speed = plan::measure_machine(setup.device.device, setup.precision.compute_type());
    return EfficiencyRecord{.step_ms = 1e3 * steps.seconds / count,
                            .least_ms = 1e3 * plan::least_seconds(work, speed),
                            .peak_flops = speed.flops,
                            .copy_bytes_per_second = speed.bytes_per_second};
  } catch (const std::exception& error) {
    log::info(fmt::format("No efficiency: measuring this machine failed ({})", first_line(error.what())));
    return std::nullopt;  // all that matters is saved
  }
}

}  // namespace gpt
