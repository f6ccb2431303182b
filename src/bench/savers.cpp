#include "gpt/bench/savers.h"

#include <fmt/format.h>

#include <utility>

#include "gpt/bench/rung.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "ladder_findings.h"

namespace gpt::bench {
namespace {

Config baseline(const Wanted& wanted) {
  Config config = without_rungs(wanted).config;
  config.data = measurable(wanted.config).data;
  config.model.vocab_multiple = wanted.config.model.vocab_multiple;  // its rows are part of the model
  config.training.execution.attention = AttentionKernel::automatic;
  config.training.execution.gradient_checkpointing = GradientCheckpointing::none;
  config.training.optimizer.fused_adamw = true;
  config.training.optimizer.state_dtype = StateDtype::float32;
  return config;
}

// The bytes of tensors, or of the process where nobody counts those.
double bytes_of(const Measurement& measurement) {
  return static_cast<double>(measurement.tensor_bytes > 0 ? measurement.tensor_bytes : measurement.peak_bytes);
}

double saved_share(const LadderRow& row, const LadderRow& baseline) {
  return 1 - bytes_of(*row.measurement) / bytes_of(*baseline.measurement);
}

}  // namespace

std::vector<Rung> savers(const Wanted& wanted, const device::DeviceInfo& device) {
  const std::vector<Rung> all = all_rungs(wanted.config, device);
  std::vector<Rung> result;
  for (const char* names :
       {"block", "selective", "compile", "compile+activation", "compile+norm", "compile+selective", "compile+block",
        "accumulation", "8-bit", "offload", "offload+8-bit", "compile+block+8-bit", "end_to_end",
        "end_to_end+no_master+bfloat16_gradients", "end_to_end+no_master+bfloat16_gradients+compile+block+8-bit"})
    result.push_back(combined(names, all));
  return result;
}

Savings measure_savers(const Wanted& wanted, const std::vector<Rung>& savers, double seconds, const Measure& measure,
                       const Progress& progress) {
  const TimeLeft time_left(seconds);
  const Config base = baseline(wanted);
  Savings result{.rows = {}, .length = {}};
  progress(0, "baseline");
  const auto pace = find_pace(base, measure);
  if (!pace) return result;
  int64_t count = 0, done = 0;
  for (const Rung& saver : savers) count += saver.obstacle.empty() ? 1 : 0;
  result.length = effort_for(*pace, count, seconds).length;
  const auto start = measure(base, result.length);
  if (!start) return result;
  result.rows.push_back({.name = "baseline",
                         .settings = "float32, LibTorch's operators, gradient_checkpointing: none",
                         .measurement = start,
                         .kept = true,
                         .verdict = ""});
  for (const Rung& saver : savers) {
    LadderRow row{.name = saver.name, .settings = saver.settings, .measurement = {}, .verdict = saver.obstacle};
    if (saver.obstacle.empty()) {
      progress(static_cast<double>(done) / static_cast<double>(count), saver.name);
      const auto [config, also] = applied(saver.apply, base, wanted.written);
      row.settings = with_changes(row.settings, also);
      try {
        const Pairs pairs{time_left.share(count - done)};
        const auto pair = compare({base, result.length}, {config, result.length}, pairs, measure);
        if (!pair) return result;
        row.take(*pair);
        const std::string difference = difference_of_losses(pair->after, start->loss);
        row.kept = difference.empty();
        row.verdict = row.kept ? fmt::format("the same loss within {}", as_share(kLossTolerance)) : difference;
        if (const std::string untold = why_untold(*pair); !untold.empty()) row.verdict += "; speed: " + untold;
      } catch (const Error& error) { row.verdict = error.what(); }
      ++done;
    }
    result.rows.push_back(std::move(row));
  }
  result.complete = true;
  return result;
}

Findings findings(const Savings& savings) {
  Findings result{
      .text = {fmt::format(
          "Each was measured in turn with the baseline, until {}: medians of {} after {} to warm up. `memory` is the peak of the whole "
          "process, `tensors` that of its large tensors, of which `saved` is a share; speed is that of the baseline = 1. The loss is the mean "
          "of the last updates, at most ten.",
          kPairsEnd, plural(savings.length.updates, "update"), savings.length.warm_up)},
      .json = fmt::format(R"({{"warm_up": {}, "updates": {}, "rows": {}}})", savings.length.warm_up,
                          savings.length.updates, json_of(savings.rows, start_loss_of(savings.rows))),
      .chart_title = "Peak of the tensors in MB",
      .legend = {"the loss is kept", "another loss"},
      .threads = savings.rows.front().measurement->threads,
      .complete = savings.complete};
  Table table{{{"saver", "memory", "tensors", "saved", "ms/step", "speed", "loss", "verdict"}}};
  for (const LadderRow& row : savings.rows) {
    if (!row.measurement) {
      table.rows.push_back({row.name, "-", "-", "-", "-", "-", "-", row.verdict});
      continue;
    }
    const double bytes = bytes_of(*row.measurement);
    const std::string saved = as_share(saved_share(row, savings.rows[0]));
    table.rows.push_back({row.name, format_bytes(static_cast<double>(row.measurement->peak_bytes)), format_bytes(bytes),
                          saved, fmt::format("{:.1f}", row.measurement->step_ms), as_ratio(row.gain),
                          fmt::format("{:.4f}", row.measurement->loss), row.verdict});
    result.bars.push_back({row.name, fmt::format("{}, {} less, {}", format_bytes(bytes), saved, as_ratio(row.gain)),
                           bytes / 1e6, row.kept});
  }
  result.text.push_back(std::move(table));
  add_settings(result.text, savings.rows, "savers");
  return result;
}

}  // namespace gpt::bench
