#include "gpt/train/efficiency.h"

#include <fmt/format.h>

#include <exception>

#include "gpt/core/error.h"
#include "gpt/core/log.h"

namespace gpt {

std::optional<EfficiencyRecord> EfficiencyMeter::measure(const TimingRecord& steps, double run_seconds) {
  if (run_seconds < kShortestRun || steps.steps == 0) return std::nullopt;
  try {
    const plan::MachineSpeed now = plan::measure_machine(setup_.device.device, setup_.precision.compute_type());
    if (!speed_) speed_ = now;
    speed_->keep_faster(now);
  } catch (const std::exception& error) {  // the run goes on, or all that matters is saved
    log::info(fmt::format("Measuring the speed of this machine failed ({})", first_line(error.what())));
  }
  return of(steps);
}

std::optional<EfficiencyRecord> EfficiencyMeter::of(const TimingRecord& steps) const {
  if (!speed_ || steps.steps == 0) return std::nullopt;
  const auto count = static_cast<double>(steps.steps);
  const auto work = plan::work_of_step(setup_.config.model, setup_.config.training, setup_.precision,
                                       /*tokens=*/static_cast<double>(steps.tokens) / count /
                                           static_cast<double>(setup_.mesh.all->size()));
  return EfficiencyRecord{.step_ms = 1e3 * steps.seconds / count,
                          .least_ms = 1e3 * plan::least_seconds(work, *speed_),
                          .peak_flops = speed_->flops,
                          .copy_bytes_per_second = speed_->bytes_per_second};
}

}  // namespace gpt
