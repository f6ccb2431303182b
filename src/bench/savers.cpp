#include "gpt/bench/savers.h"

#include <fmt/format.h>

#include <utility>

#include "gpt/bench/rung.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/device/precision.h"
#include "ladder_findings.h"

namespace gpt {
namespace {

using Change = std::function<void(Config& config)>;

Config baseline(const Config& wanted) {
  Config config = without_rungs(wanted);
  config.data = measurable(wanted).data;
  config.model.vocab_multiple = wanted.model.vocab_multiple;  // its rows are part of the model
  config.training.execution.attention = AttentionKernel::automatic;
  config.training.execution.gradient_checkpointing = GradientCheckpointing::none;
  config.training.optimizer.fused_adamw = true;
  config.training.optimizer.state_dtype = StateDtype::float32;
  return config;
}

Change checkpointing(GradientCheckpointing level) {
  return [level](Config& config) { config.training.execution.gradient_checkpointing = level; };
}

void compile(Config& config) { config.training.execution.use_compile = true; }

void in_bfloat16(Config& config) {
  config.training.precision = {.use_amp = true, .dtype = Dtype::bfloat16, .amp_mode = AmpMode::end_to_end};
}

void in_bfloat16_alone(Config& config) {
  in_bfloat16(config);
  config.training.precision.master_weights = false;
  config.training.precision.gradient_dtype = GradientDtype::bfloat16;
}

void offload(Config& config) { config.training.optimizer.offload = 1; }
void in_8_bits(Config& config) { config.training.optimizer.state_dtype = StateDtype::int8; }

// The same effective batch in twice as many micro-batches.
void halve_batch(Config& config) {
  config.training.gradient_accumulation_steps *= 2;
  config.training.batch_size /= 2;
}

Change all_of(std::vector<Change> changes) {
  return [changes = std::move(changes)](Config& config) {
    for (const Change& change : changes) change(config);
  };
}

// Of tensors, or of the process where nobody counts them.
double bytes_of(const Measurement& measurement) {
  return static_cast<double>(measurement.tensor_bytes > 0 ? measurement.tensor_bytes : measurement.peak_bytes);
}

double saved_share(const LadderRow& row, const LadderRow& baseline) {
  return 1 - bytes_of(*row.measurement) / bytes_of(*baseline.measurement);
}

}  // namespace

std::vector<Rung> savers(const Config& wanted, const DeviceInfo& device) {
  using enum GradientCheckpointing;
  const std::string no_bfloat16 = bfloat16_emulation(device);
  const std::string no_gpu = device.device.is_cuda() ? "" : "needs a GPU";
  const std::string odd = wanted.training.batch_size % 2 == 0 ? "" : "the micro-batch has an odd number of sequences";
  return {
      {"block", "gradient_checkpointing: block", checkpointing(block)},
      {"selective", "gradient_checkpointing: selective", checkpointing(selective)},
      {"compile", "use_compile: true", compile},
      {"compile+activation", "use_compile: true, gradient_checkpointing: activation",
       all_of({compile, checkpointing(activation)})},
      {"compile+norm", "use_compile: true, gradient_checkpointing: norm", all_of({compile, checkpointing(norm)})},
      {"compile+selective", "use_compile: true, gradient_checkpointing: selective",
       all_of({compile, checkpointing(selective)})},
      {"compile+block", "use_compile: true, gradient_checkpointing: block", all_of({compile, checkpointing(block)})},
      {"half batch", "half the batch_size, with twice the gradient_accumulation_steps", halve_batch, odd},
      {"8-bit", "use_8bit: true", in_8_bits},
      {"offload", "offload_optimizer: 1", offload, no_gpu},
      {"offload+8-bit", "those of offload and 8-bit", all_of({offload, in_8_bits}), no_gpu},
      {"compile+block+8-bit", "those of compile+block and 8-bit", all_of({compile, checkpointing(block), in_8_bits})},
      {"bfloat16", "use_amp: true, dtype: bfloat16, amp_mode: end_to_end", in_bfloat16, no_bfloat16},
      {"bfloat16 alone", "that of bfloat16, master_weights: false, gradient_dtype: bfloat16", in_bfloat16_alone,
       no_bfloat16},
      {"bfloat16 alone+compile+block+8-bit", "those of bfloat16 alone and compile+block+8-bit",
       all_of({in_bfloat16_alone, compile, checkpointing(block), in_8_bits}), no_bfloat16},
  };
}

Savings measure_savers(const Config& wanted, const std::vector<Rung>& savers, double seconds, const Measure& measure,
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
      Config config = base;
      saver.apply(config);
      try {
        const Pairs pairs{time_left.share(count - done)};
        const auto pair = compare({base, result.length}, {config, result.length}, pairs, measure);
        if (!pair) return result;
        row.take(*pair);
        const std::string difference = difference_of_losses(pair->after, start->loss);
        row.kept = difference.empty();
        row.verdict = row.kept ? fmt::format("the same loss within {}", as_share(kLossTolerance)) : difference;
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

}  // namespace gpt
