#include "gpt/train/settle_rate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/terminal.h"
#include "gpt/report/rate_chart.h"
#include "gpt/run/find_rate.h"

namespace gpt {
namespace {

std::vector<RateCurve> curves_of(const std::vector<run::Trial>& trials) {
  std::vector<RateCurve> curves;
  for (const run::Trial& trial : trials) {
    if (curves.empty() || curves.back().updates != trial.updates) curves.push_back({trial.updates, {}});
    curves.back().points.push_back({trial.rate, trial.loss});
  }
  for (RateCurve& curve : curves)
    std::sort(curve.points.begin(), curve.points.end(), [](const auto& a, const auto& b) { return a.rate < b.rate; });
  return curves;
}

// "Losses after 40 updates: 3.4017 at 0.001, 3.2173 at 0.002, none at 0.004"
std::string describe(const RateCurve& curve) {
  std::vector<std::string> losses;
  for (const auto& [rate, loss] : curve.points)
    losses.push_back(std::isfinite(loss) ? fmt::format("{:.4f} at {:.3g}", loss, rate)
                                         : fmt::format("none at {:.3g}", rate));
  return fmt::format("Losses after {}: {}", plural(curve.updates, "update"), fmt::join(losses, ", "));
}

// Returns the chart.
std::string tell(const run::FoundRate& found, const std::string& chart_path) {
  constexpr int kMostColumns = 100;
  const std::vector<RateCurve> curves = curves_of(found.trials);
  for (const RateCurve& curve : curves) log::info(describe(curve));
  if (const int columns = terminal_columns(STDERR_FILENO); columns > 0)
    log::info(draw_rate_curves(curves, std::min(columns, kMostColumns), locale_is_utf8()));
  const std::string why = fmt::format("{}; {} were made", found.why, found.trials.size());
  log::success(fmt::format("Learning rate {:.2g}: {} (chart: {})", found.rate, why, chart_path));
  return rate_curves_svg(curves, found.rate, why);
}

}  // namespace

std::string settle_learning_rate(run::Setup& setup, const run::Beginning& begins, const run::Folder& folder) {
  ScheduleConfig& schedule = setup.config.training.schedule;
  std::optional<run::FoundRate> found = run::find_rate(setup, begins);
  // The schedule ends at min_lr, which must not be above where it begins.
  const double least = schedule.lr_schedule == LrSchedule::constant ? 0 : schedule.min_lr;
  if (found && found->rate < least) {
    found->why += fmt::format("; it is raised to training.min_lr from {:.2g}", found->rate);
    found->rate = least;
  }
  schedule.finds_learning_rate = false;
  schedule.learning_rate = found ? found->rate : std::max(schedule.learning_rate, least);
  if (!setup.mesh.all->is_first()) return "";
  if (found) return tell(*found, folder.rate_chart_path());
  log::warn(fmt::format(
      "no learning rate was found in three minutes, because updates of this model take long or diverge at every rate: "
      "training.learning_rate is {:.3g}",
      schedule.learning_rate));
  return "";
}

void write_rate_chart(const run::Folder& folder, const std::string& svg) {
  if (svg.empty()) return;
  try {
    AtomicFile file(folder.rate_chart_path());
    file.write(svg);
    file.commit(Durability::unsynced);
  } catch (const Error& error) {  // what stands beside the state of a run is no reason to end it
    if (error.code() != ExitCode::disk) throw;
    log::warn(error.what());
  }
}

}  // namespace gpt
