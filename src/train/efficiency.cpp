#include "gpt/train/efficiency.h"

namespace gpt::train {

std::optional<report::EfficiencyRecord> EfficiencyMeter::measure(const report::TimingRecord& steps,
                                                                 double run_seconds) {
  constexpr double kShortest = 30;
  if (run_seconds < kShortest || steps.steps == 0) return std::nullopt;
  has_tried_ = true;
  plan::measure_again(speed_, setup_.device.device, setup_.precision.compute_type());
  return of(steps);
}

std::optional<report::EfficiencyRecord> EfficiencyMeter::of(const report::TimingRecord& steps) const {
  if (!speed_.is_known() || steps.steps == 0) return std::nullopt;
  const auto count = static_cast<double>(steps.steps);
  const auto work = plan::work_of_step(setup_.config.model, setup_.config.training, setup_.precision,
                                       /*tokens=*/static_cast<double>(steps.tokens) / count /
                                           static_cast<double>(setup_.mesh.all->size()));
  return report::EfficiencyRecord{.step_ms = 1e3 * steps.seconds / count,
                                  .least_ms = 1e3 * plan::least_seconds(work, speed_),
                                  .peak_flops = speed_.flops,
                                  .copy_bytes_per_second = speed_.bytes_per_second};
}

}  // namespace gpt::train
