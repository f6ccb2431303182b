#include "gpt/train/reporting.h"

#include <fmt/format.h>

#include <memory>

#include "gpt/config/load.h"
#include "gpt/core/version.h"
#include "gpt/report/console.h"
#include "gpt/report/html_report.h"
#include "gpt/report/metrics_file.h"
#include "gpt/report/sample_files.h"
#include "gpt/report/tensorboard.h"

namespace gpt {

Listeners listeners_of(const RunFolder& folder, const ReportConfig& config) {
  Listeners listeners;
  listeners.add(std::make_unique<Console>(), "log lines are missing");
  listeners.add(std::make_unique<TimingTable>(), "the closing table is missing");
  listeners.add(std::make_unique<MetricsFile>(folder.metrics_path()), "metrics.jsonl is missing lines from here on");
  listeners.add(std::make_unique<SampleFiles>(folder.samples_path()), "samples/ is missing texts from here on");
  listeners.add(std::make_unique<HtmlReport>(folder.report_path(), folder.metrics_path()),
                "report.html is out of date");
  if (config.tensorboard) {
    listeners.add(std::make_unique<TensorBoardEvents>(folder.tensorboard_path()),
                  "tensorboard/ is missing events from here on");
  }
  listeners.add(std::make_unique<ClosingCurve>(folder.metrics_path()), "the loss curve is missing");
  return listeners;
}

RunRecord describe_run(const Config& config, const RunState& state, const RunPlan& plan, const RunFolder& folder,
                       const DeviceInfo& device) {
  return {.first_step = state.step,
          .total_steps = plan.total_steps,
          .total_epochs = plan.total_epochs(),
          .parameters = state.model.parameters().count(),
          .folder = folder.path(),
          .configuration = config::dump(config),
          .machine = fmt::format("{}; {}", device.name, version_text())};
}

}  // namespace gpt
