#include "gpt/train/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"

namespace gpt {
namespace {

// JSON has no NaN: a value that is not finite is written as null.
nlohmann::json number(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr); }

}  // namespace

Metrics::Metrics(const std::string& jsonl_path, const RunPlan& plan) : file_(jsonl_path), plan_(plan) {}

// A full disk is no reason to lose the run. It is reported once.
void Metrics::write(const std::string& line) {
  try {
    file_.line(line);
  } catch (const Error& error) {
    if (!std::exchange(lost_line_, true)) log::warn(fmt::format("{}; training continues, and metrics.jsonl is missing lines from here on", error.what()));
  }
}

void Metrics::step(const StepMetrics& m) {
  nlohmann::ordered_json record{{"step", m.step},
                                {"loss", number(m.loss)},
                                {"lr", m.learning_rate},
                                {"grad_norm", number(m.grad_norm)},
                                {"step_ms", m.step_ms},
                                {"tokens_per_second", m.tokens_per_second},
                                {"peak_memory_mb", m.peak_memory_mb}};
  if (m.mfu) record["mfu"] = *m.mfu;
  write(record.dump());
  const std::string mfu = m.mfu ? fmt::format(" | mfu {:.1f}%", 100 * *m.mfu) : "";
  log::info(fmt::format("step {:>{}}/{} | loss {:.4f} | lr {:.2e} | norm {:.3f} | {:.1f} ms/step | {} tok/s{} | {:.0f} MB", m.step,
                        std::to_string(plan_.total_steps).size(), plan_.total_steps, m.loss, m.learning_rate, m.grad_norm,
                        m.step_ms, format_count(m.tokens_per_second), mfu, m.peak_memory_mb));
  last_ = m;
}

void Metrics::evaluation(int64_t step, const Evaluation& evaluation, bool best, double seconds) {
  nlohmann::ordered_json record{{"step", step}, {"val_loss", number(evaluation.loss)}, {"val_perplexity", number(evaluation.perplexity())}};
  std::string bits;
  if (evaluation.bits_per_byte) {
    record["val_bits_per_byte"] = number(*evaluation.bits_per_byte);
    bits = fmt::format(" | {:.4f} bits/byte", *evaluation.bits_per_byte);
  }
  write(record.dump());
  log::info(fmt::format("step {:>{}}/{} | val loss {:.4f} | perplexity {:.2f}{} | {:.1f}s{}", step,
                        std::to_string(plan_.total_steps).size(), plan_.total_steps, evaluation.loss, evaluation.perplexity(), bits,
                        seconds, best ? " | best so far" : ""));
  last_val_loss_ = evaluation.loss;
}

void Metrics::epoch(int64_t epoch, double mean_loss, double seconds, double sequences_per_second) {
  log::info(fmt::format("epoch {}/{} | mean loss {:.4f} | {} | {:.0f} sequences/s", epoch, plan_.total_epochs(), mean_loss,
                        format_duration(seconds), sequences_per_second));
}

void Metrics::timed(int64_t steps, int64_t tokens, double seconds, bool warm_up) {
  if (steps == 0) return;
  segments_.push_back({timed_steps_ + 1, steps, tokens, seconds, warm_up});
  timed_steps_ += steps;
}

std::string Metrics::closing_table() const {
  constexpr size_t kRows = 5;  // of the stable part
  std::vector<Segment> rows;
  size_t stable = std::count_if(segments_.begin(), segments_.end(), [](const Segment& s) { return !s.warm_up; });
  const size_t per_row = std::max<size_t>(1, (stable + kRows - 1) / kRows);
  size_t in_row = 0;
  for (const Segment& segment : segments_) {
    const bool is_full = in_row == per_row && !segment.warm_up;  // the start is one row
    if (rows.empty() || rows.back().warm_up != segment.warm_up || is_full) {
      rows.push_back(segment);
      in_row = 1;
      continue;
    }
    rows.back().steps += segment.steps;
    rows.back().tokens += segment.tokens;
    rows.back().seconds += segment.seconds;
    ++in_row;
  }
  const auto row = [](const std::string& label, const Segment& s) {
    return fmt::format("\n  {:<24} {:>10.5f} {:>12}", label, s.seconds / s.steps, format_count(s.tokens / s.seconds));
  };
  std::string table = fmt::format("  {:<24} {:>10} {:>12}", "steps", "s/step", "tokens/s");
  Segment total{0, 0, 0, 0.0, false};
  for (const Segment& segment : rows) {
    const int64_t last_step = segment.first_step + segment.steps - 1;
    const std::string range = segment.steps == 1 ? std::to_string(last_step) : fmt::format("{}-{}", segment.first_step, last_step);
    table += row(range + (segment.warm_up ? " (start)" : ""), segment);
    if (segment.warm_up) continue;
    total.steps += segment.steps;
    total.tokens += segment.tokens;
    total.seconds += segment.seconds;
  }
  if (total.steps > 0) table += row("after the start", total);
  return table;
}

}  // namespace gpt
