#include "gpt/report/early_loss.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "gpt/core/process.h"

namespace gpt::report {

std::optional<EarlyLoss> early_loss(const RunHistory& history, int64_t total_steps) {
  const std::vector<CurvePoint> losses = history.validation_loss.points(), bits = history.bits_per_byte.points();
  for (size_t i = 1; i < losses.size(); ++i) {
    if (3 * losses[i].step < total_steps) continue;
    return EarlyLoss{.loss = losses[i].value.value_or(std::numeric_limits<double>::quiet_NaN()),
                     .bits_per_byte = bits.size() == losses.size() ? bits[i].value : std::nullopt};
  }
  return std::nullopt;
}

std::vector<bool> find_poor(const std::vector<std::optional<EarlyLoss>>& losses) {
  // A run that has diverged has neither.
  const bool have_bits = std::all_of(losses.begin(), losses.end(), [](const auto& loss) {
    return !loss || std::isnan(loss->loss) || loss->bits_per_byte;
  });
  std::vector<std::pair<double, size_t>> judged;
  for (size_t i = 0; i < losses.size(); ++i) {
    if (!losses[i]) continue;
    const bool is_number = !std::isnan(losses[i]->loss);
    judged.emplace_back(!is_number  ? std::numeric_limits<double>::infinity()
                        : have_bits ? *losses[i]->bits_per_byte
                                    : losses[i]->loss,
                        i);
  }
  std::sort(judged.begin(), judged.end());
  std::vector<bool> are_poor(losses.size(), false);
  for (size_t i = (judged.size() + 1) / 2; i < judged.size(); ++i) are_poor[judged[i].second] = true;
  return are_poor;
}

void StopAtThird::begin(const RunRecord& run) {
  total_steps_ = run.total_steps;
  if (run.first_step > 0) read_metrics(metrics_path_, run.first_step, history_);
  if (early_loss(history_, total_steps_)) process::request_stop(SIGTERM);
}

void StopAtThird::evaluation(const EvaluationRecord& evaluation) { history_.add(evaluation); }

void StopAtThird::activity(const ActivityRecord& activity) {
  if (activity.what == "training" && early_loss(history_, total_steps_)) process::request_stop(SIGTERM);
}

}  // namespace gpt::report
