#include "gpt/train/reporting.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/core/running_clock.h"
#include "gpt/core/version.h"
#include "gpt/report/console.h"
#include "gpt/report/event_command.h"
#include "gpt/report/html_report.h"
#include "gpt/report/metrics_file.h"
#include "gpt/report/sample_files.h"
#include "gpt/report/status_file.h"
#include "gpt/report/tensorboard.h"
#include "gpt/train/announce.h"

namespace gpt::train {

report::Moment moment_of(const run::State& state) { return {seconds_since_1970(), state.loader.tokens_seen()}; }

report::Listeners listeners_of(const run::Folder& folder, const ReportConfig& config,
                               std::unique_ptr<report::ResultFile> result, const std::vector<std::string>& on_event) {
  report::Listeners listeners;
  listeners.add(std::make_unique<report::Console>(), "log lines are missing");
  listeners.add(std::make_unique<report::TimingTable>(), "the closing table is missing");
  listeners.add(std::make_unique<report::MetricsFile>(folder.metrics_path()),
                "metrics.jsonl is missing lines from here on");
  listeners.add(std::make_unique<report::StatusFile>(folder.status_path(), folder.metrics_path()),
                "status.json is out of date");
  listeners.add(std::make_unique<report::SampleFiles>(folder.samples_path()), "samples/ is missing texts from here on");
  listeners.add(std::make_unique<report::HtmlReport>(folder.report_path(), folder.metrics_path()),
                "report.html is out of date");
  if (config.tensorboard) {
    listeners.add(std::make_unique<report::TensorBoardEvents>(folder.tensorboard_path()),
                  "tensorboard/ is missing events from here on");
  }
  listeners.add(std::make_unique<report::ClosingCurve>(folder.metrics_path()), "the loss curve is missing");
  if (result) listeners.add(std::move(result), "the result is missing");
  if (!on_event.empty())
    listeners.add(std::make_unique<report::EventCommand>(on_event), "training.on_event hears nothing");
  return listeners;
}

namespace {

std::vector<std::pair<std::string, std::string>> settings_beside_defaults(const Config& config) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const config::Change& change : config::difference(Config(), config))
    settings.emplace_back(change.key, change.after);
  return settings;
}

}  // namespace

report::RunRecord describe_run(const run::Run& run, const run::Folder& folder, std::vector<std::string> changes) {
  const run::Setup& setup = run.setup();
  const run::Plan& plan = run.plan();
  const bool is_whole = setup.config.data.stages.empty();
  return {.first_step = run.state().step,
          .total_steps = plan.total_steps,
          .total_epochs = plan.total_epochs(),
          .parameters = layout::parameter_count(setup.config.model),
          .folder = folder.path(),
          .configuration = config::dump(setup.config),
          .machine =
              fmt::format("{}\nPrecision: {}\n{}", to_text(setup.device), setup.precision.reason, version_text()),
          .epochs = is_whole ? plan.epochs() : 0,
          .changes = std::move(changes),
          .settings = settings_beside_defaults(setup.config),
          .seed = setup.config.seed};
}

}  // namespace gpt::train
