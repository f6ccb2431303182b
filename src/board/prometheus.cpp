#include "gpt/board/prometheus.h"

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <vector>

#include "gpt/core/printable.h"
#include "gpt/core/text.h"

namespace gpt::board {
namespace {

using Values = std::vector<std::optional<double>>;  // of each device, or one
using Value = std::function<Values(const RunRow&)>;

struct Metric {
  const char *name, *help;
  Value values;  // nothing: the run has none
};

constexpr const char* kStates[] = {"starting", "running", "stopped", "done", "killed"};

Value number(std::optional<double> RunRow::* member) {
  return [member](const RunRow& run) { return Values{run.*member}; };
}

// In base units, as Prometheus wants them.
Value scaled(std::optional<double> RunRow::* member, double factor) {
  return [member, factor](const RunRow& run) {
    const std::optional<double>& value = run.*member;
    return Values{value ? std::optional(*value * factor) : std::nullopt};
  };
}

Value device(report::DeviceUse::Value report::DeviceUse::* member, double factor = 1) {
  return [member, factor](const RunRow& run) {
    Values values;
    for (const report::DeviceUse& device : run.devices) {
      const report::DeviceUse::Value& value = device.*member;
      values.push_back(value ? std::optional(*value * factor) : std::nullopt);
    }
    return values;
  };
}

Value positive(double RunRow::* member) {
  return [member](const RunRow& run) { return Values{run.*member > 0 ? std::optional(run.*member) : std::nullopt}; };
}

const std::vector<Metric>& metrics() {
  static const std::vector<Metric> all{
      {"gpt_run_step", "Updates done.",
       [](const RunRow& run) { return Values{run.step ? std::optional<double>(*run.step) : std::nullopt}; }},
      {"gpt_run_steps_planned", "Updates to do in all.",
       [](const RunRow& run) {
         return Values{run.total_steps > 0 ? std::optional<double>(run.total_steps) : std::nullopt};
       }},
      {"gpt_run_tokens", "Tokens that the run has been trained on.",
       [](const RunRow& run) { return Values{run.tokens ? std::optional<double>(*run.tokens) : std::nullopt}; }},
      {"gpt_run_loss", "Training loss of the last logged update, in nats per token.", number(&RunRow::loss)},
      {"gpt_run_validation_loss", "Last validation loss, in nats per token.", number(&RunRow::validation_loss)},
      {"gpt_run_best_validation_loss", "Best validation loss so far, in nats per token.", number(&RunRow::best)},
      {"gpt_run_learning_rate", "Learning rate of the last logged update.", number(&RunRow::learning_rate)},
      {"gpt_run_gradient_norm", "Norm of the gradients of the last logged update.", number(&RunRow::grad_norm)},
      {"gpt_run_tokens_per_second", "Tokens trained on in a second.", number(&RunRow::tokens_per_second)},
      {"gpt_run_step_seconds", "Time of an update.", scaled(&RunRow::step_ms, 1e-3)},
      {"gpt_run_peak_memory_bytes", "Largest memory that tensors took.", scaled(&RunRow::peak_memory_mb, 1e6)},
      {"gpt_run_gpu_utilization_ratio", "Share of the time in which the GPU ran any kernel.",
       device(&report::DeviceUse::utilization)},
      {"gpt_run_gpu_power_watts", "Power of the GPU.", device(&report::DeviceUse::power_w)},
      {"gpt_run_gpu_power_limit_watts", "Limit of the GPU's power.", device(&report::DeviceUse::power_limit_w)},
      {"gpt_run_gpu_temperature_celsius", "Temperature of the GPU.", device(&report::DeviceUse::temperature_c)},
      {"gpt_run_gpu_clock_hertz", "Clock of the GPU's multiprocessors.", device(&report::DeviceUse::clock_mhz, 1e6)},
      {"gpt_run_gpu_slowed_by_power_ratio", "Share of the time in which the limit of its power slowed the GPU.",
       device(&report::DeviceUse::slowed_by_power)},
      {"gpt_run_gpu_slowed_by_heat_ratio", "Share of the time in which heat slowed the GPU.",
       device(&report::DeviceUse::slowed_by_heat)},
      {"gpt_run_cores", "Processors that the run may use.", device(&report::DeviceUse::cores)},
      {"gpt_run_cores_busy", "Processors' worth of time that the run used.", device(&report::DeviceUse::cores_busy)},
      {"gpt_run_cores_others", "Processors' worth of time that other programs used.",
       device(&report::DeviceUse::cores_others)},
      {"gpt_run_device_memory_used_bytes", "Used memory of the GPU, or of the machine or control group.",
       device(&report::DeviceUse::memory_used_mb, 1e6)},
      {"gpt_run_device_memory_bytes", "Memory of the GPU, or of the machine or control group.",
       device(&report::DeviceUse::memory_mb, 1e6)},
      {"gpt_run_data_wait_ratio", "Share of the time in which the run waited for data.",
       device(&report::DeviceUse::data_wait)},
      {"gpt_run_remaining_seconds", "Expected time to the end of the run.", positive(&RunRow::remaining_seconds)},
      {"gpt_run_last_written_timestamp_seconds", "When the run wrote anything last, in seconds since 1970.",
       positive(&RunRow::written)}};
  return all;
}

std::string label(const std::string& text) {
  return replaced(replaced(replaced(printable(text), "\\", "\\\\"), "\"", "\\\""), "\n", "\\n");
}

// Devices are numbered where there are several.
std::string samples_of(const Metric& metric, const RunRow& run) {
  const Values values = metric.values(run);
  std::string samples;
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i])
      samples += fmt::format("{}{{run=\"{}\"{}}} {}\n", metric.name, label(run.name),
                             values.size() > 1 ? fmt::format(",device=\"{}\"", i) : "", *values[i]);
  return samples;
}

}  // namespace

std::string prometheus_text(const std::vector<RunRow>& runs) {
  std::string text;
  for (const Metric& metric : metrics()) {
    std::string samples;
    for (const RunRow& run : runs) samples += samples_of(metric, run);
    if (!samples.empty())
      text += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n{2}", metric.name, metric.help, samples);
  }
  if (runs.empty()) return text;
  text += "# HELP gpt_run_state What the run does: 1 for that state, 0 for the others.\n# TYPE gpt_run_state gauge\n";
  for (const RunRow& run : runs)
    for (const char* state : kStates)
      text += fmt::format("gpt_run_state{{run=\"{}\",state=\"{}\"}} {}\n", label(run.name), state,
                          run.state == state ? 1 : 0);
  return text;
}

}  // namespace gpt::board
