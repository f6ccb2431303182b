#include "gpt/train/settle_rate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/terminal.h"
#include "gpt/report/rate_chart.h"
#include "gpt/run/find_rate.h"

namespace gpt::train {
namespace {

std::vector<report::RateCurve> curves_of(const std::vector<run::Trial>& trials) {
  std::vector<report::RateCurve> curves;
  for (const run::Trial& trial : trials) {
    if (curves.empty() || curves.back().updates != trial.updates) curves.push_back({trial.updates, {}});
    curves.back().points.push_back({trial.rate, trial.loss});
  }
  for (report::RateCurve& curve : curves)
    std::sort(curve.points.begin(), curve.points.end(), [](const auto& a, const auto& b) { return a.rate < b.rate; });
  return curves;
}

// "Losses after 40 updates: 3.4017 at 0.001, 3.2173 at 0.002, none at 0.004"
std::string describe(const report::RateCurve& curve) {
  std::vector<std::string> losses;
  for (const auto& [rate, loss] : curve.points)
    losses.push_back(std::isfinite(loss) ? fmt::format("{:.4f} at {:.3g}", loss, rate)
                                         : fmt::format("none at {:.3g}", rate));
  return fmt::format("Losses after {}: {}", plural(curve.updates, "update"), fmt::join(losses, ", "));
}

std::string explain(const run::FoundRate& found) {
  return fmt::format("{}; {} were made", found.why, found.trials.size());
}

void tell(const run::FoundRate& found, const std::string& chart_path) {
  constexpr int kMostColumns = 100;
  const std::vector<report::RateCurve> curves = curves_of(found.trials);
  for (const report::RateCurve& curve : curves) log::info(describe(curve));
  if (const int columns = terminal_columns(STDERR_FILENO); columns > 0)
    log::info(report::draw_rate_curves(curves, std::min(columns, kMostColumns), locale_is_utf8()));
  log::success(fmt::format("Learning rate {:.2g}: {} (chart: {})", found.rate, explain(found), chart_path));
}

}  // namespace

std::optional<run::FoundRate> settle_learning_rate(run::Setup& setup, const run::Beginning& begins,
                                                   const run::Folder& folder) {
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
  if (!setup.mesh.all->is_first()) return found;
  if (found) {
    tell(*found, folder.rate_chart_path());
    return found;
  }
  log::warn(fmt::format(
      "no learning rate was found in three minutes, or a fifth of training.max_time, because updates of this model take long or diverge at every rate: "
      "training.learning_rate is {:.3g}",
      schedule.learning_rate));
  return found;
}

void write_rate_chart(const run::Folder& folder, const run::FoundRate& found) {
  try {
    AtomicFile file(folder.rate_chart_path());
    file.write(report::rate_curves_svg(curves_of(found.trials), found.rate, explain(found)));
    file.commit(Durability::unsynced);
  } catch (const Error& error) {  // what stands beside the state of a run is no reason to end it
    if (error.code() != ExitCode::disk) throw;
    log::warn(error.what());
  }
}

std::string to_json(const run::FoundRate& found) {
  using nlohmann::ordered_json;
  ordered_json trials = ordered_json::array();
  for (const run::Trial& trial : found.trials) {
    trials.push_back({{"updates", trial.updates},
                      {"learning_rate", trial.rate},
                      {"loss", std::isfinite(trial.loss) ? ordered_json(trial.loss) : ordered_json()}});
  }
  const ordered_json object{{"learning_rate", found.rate}, {"why", found.why}, {"trials", std::move(trials)}};
  return object.dump(2) + "\n";
}

}  // namespace gpt::train
