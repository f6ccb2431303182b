#include "gpt/report/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/terminal.h"
#include "gpt/core/text_table.h"
#include "gpt/report/loss_curve.h"
#include "gpt/report/run_history.h"

namespace gpt::report {
namespace {

// A row of the table: intervals that follow each other.
struct Row {
  int64_t first_step;
  TimingRecord sum;
};

std::vector<std::string> cells_of(const std::string& label, const TimingRecord& sum) {
  return {label, format_short_duration(sum.seconds / static_cast<double>(sum.steps)),
          format_count(static_cast<double>(sum.tokens) / sum.seconds)};
}

// What a log line says beside its position. The higher the rank, the sooner a narrow terminal goes without it.
struct Field {
  int rank;
  std::string text;  // empty: there is nothing to say
};

std::string joined(std::string line, const std::vector<Field>& fields, int highest_rank) {
  for (const Field& field : fields) {
    if (!field.text.empty() && field.rank <= highest_rank) line += " | " + field.text;
  }
  return line;
}

void log_fields(const std::string& position, const std::vector<Field>& fields) {
  const std::string whole = joined(position, fields, std::numeric_limits<int>::max());
  std::string shortened = whole;
  const int columns = terminal_columns(STDERR_FILENO);
  for (int rank = static_cast<int>(fields.size()); rank > 0 && std::ssize(shortened) > columns; --rank)
    shortened = joined(position, fields, rank - 1);
  log::info(whole, shortened);
}

// The start is one row; what follows is shared out among kRows.
std::vector<Row> rows_of(const std::vector<TimingRecord>& intervals, int64_t first_step) {
  constexpr int64_t kRows = 5;
  const int64_t stable =
      std::count_if(intervals.begin(), intervals.end(), [](const TimingRecord& t) { return !t.is_warm_up; });
  const int64_t per_row = std::max<int64_t>(1, (stable + kRows - 1) / kRows);
  std::vector<Row> rows;
  int64_t in_row = 0;
  for (const TimingRecord& interval : intervals) {
    const bool is_full = in_row == per_row && !interval.is_warm_up;
    if (rows.empty() || rows.back().sum.is_warm_up != interval.is_warm_up || is_full) {
      rows.push_back({first_step, interval});
      in_row = 1;
    } else {
      rows.back().sum += interval;
      ++in_row;
    }
    first_step += interval.steps;
  }
  return rows;
}

}  // namespace

std::string loss_text(double loss, std::optional<double> standard_error) {
  return standard_error ? fmt::format("{:.4f} ± {:.4f}", loss, *standard_error) : fmt::format("{:.4f}", loss);
}

std::string efficiency_text(const EfficiencyRecord& e) {
  return fmt::format(
      "efficiency {:.0f} %: a large product ({}/s) and a large copy ({}/s) on this machine would allow {} a step{}",
      100 * e.share(), format_flops(e.peak_flops), format_bytes(e.copy_bytes_per_second),
      format_short_duration(1e-3 * e.least_ms),
      e.share() > 1
          ? "; more than 100 % means that another program slowed these measurements down, that a cache holds what a step uses, or "
            "that products had 8 bits"
          : "");
}

std::string Console::position(int64_t step) const {
  return fmt::format("step {:>{}}/{}", step, std::to_string(run_.total_steps).size(), run_.total_steps);
}

void Console::step(const StepRecord& s) {
  const bool is_bar_shown = log::is_terminal();  // which says how much longer the run takes
  log_fields(position(s.step),
             {{0, fmt::format("loss {:.4f}", s.loss)},
              {4, fmt::format("lr {:.2e}", s.learning_rate)},
              {6, fmt::format("norm {:.3f}", s.grad_norm)},
              {1, format_short_duration(s.step_ms / 1e3) + "/step"},
              {2, format_count(s.tokens_per_second) + " tok/s"},
              {9, format_count(s.sequences_per_second) + " sequences/s"},
              {5, s.mfu ? fmt::format("mfu {:.1f}%", 100 * *s.mfu) : ""},
              {3, format_bytes(1e6 * s.peak_memory_mb)},
              {7, is_bar_shown ? "" : format_duration(s.elapsed_seconds) + " so far"},
              {8, is_bar_shown || s.remaining_seconds == 0 ? "" : format_duration(s.remaining_seconds) + " left"}});
  if (!s.devices.empty()) tell_findings(s.devices, s.at.time);
  constexpr double kGrown = 1.1;  // in a later stage, say
  if (!s.memory || s.memory->total() <= kGrown * told_memory_) return;
  told_memory_ = s.memory->total();
  log::info("Memory of the tensors at their peak: " + to_text(*s.memory));
}

// What lasts is told once, and again where it comes back after it has been away for a while.
void Console::tell_findings(const std::vector<DeviceUse>& devices, double time) {
  constexpr double kLasting = 10;  // seconds
  constexpr int64_t kAway = 20;    // readings
  ++readings_;
  for (const DeviceVerdict& verdict : judge(devices)) {
    if (!verdict.is_for_the_log) continue;
    Found& found = found_[verdict.finding];
    if (found.last < readings_ - kAway) found.is_told = false;
    if (found.last != readings_ - 1) found.since = time;
    found.last = readings_;
    if (found.is_told || time - found.since < kLasting) continue;
    found.is_told = true;
    log::info(verdict.text);
  }
}

void Console::evaluation(const EvaluationRecord& e) {
  log_fields(position(e.step), {{0, "val loss " + loss_text(e.loss, e.standard_error)},
                                {3, "perplexity " + format_perplexity(e.perplexity())},
                                {2, e.bits_per_byte ? fmt::format("{:.4f} bits/byte", *e.bits_per_byte) : ""},
                                {4, format_short_duration(e.seconds)},
                                {1, e.is_best ? "best so far" : ""}});
}

void Console::task(const TaskRecord& task) {
  std::vector<Field> fields{{0, task.task}};
  for (const TaskRecord::Metric& metric : task.metrics) {
    const int rank = metric.name == task.main_metric().name ? 0 : 2;
    fields.push_back({rank, fmt::format("{} {}", metric.name, loss_text(metric.value, metric.standard_error))});
  }
  fields.push_back({1, plural(task.examples, "example")});
  fields.push_back({3, format_short_duration(task.seconds)});
  log_fields(position(task.step), fields);
}

void Console::epoch(const EpochRecord& e) {
  const std::string since = e.since_step > 0 ? fmt::format("since step {}: ", e.since_step) : "";
  constexpr double kSlow = 0.1;
  const double missing = fastest_.epoch > 0 ? 1 - e.sequences_per_second / fastest_.sequences_per_second : 0;
  const std::string slower =
      missing > kSlow ? fmt::format(" | {:.0f} % slower than epoch {}", 100 * missing, fastest_.epoch) : "";
  log::info(fmt::format("epoch {}/{} | {}mean loss {:.4f} | {} | {:.0f} sequences/s{}", e.epoch, run_.total_epochs,
                        since, e.mean_loss, format_short_duration(e.seconds), e.sequences_per_second, slower));
  if (e.since_step == 0 && missing <= 0) fastest_ = e;
}

void Console::sample(const SampleRecord& s) { log::info(fmt::format("sample at step {}:\n{}", s.step, s.text)); }

void TimingTable::timing(const TimingRecord& timing) {
  if (timing.steps > 0) intervals_.push_back(timing);
}

void TimingTable::end() { log::info(text()); }

std::string TimingTable::text() const {
  TextTable table{.columns = {{TextColumn::left}, {TextColumn::right}, {TextColumn::right}},
                  .rows = {{"steps", "time/step", "tokens/s"}},
                  .before = "  "};
  TimingRecord total;
  for (const auto& [first_step, sum] : rows_of(intervals_, first_step_)) {
    const int64_t last_step = first_step + sum.steps - 1;
    const std::string range = sum.steps == 1 ? std::to_string(last_step) : fmt::format("{}-{}", first_step, last_step);
    table.rows.push_back(cells_of(range + (sum.is_warm_up ? " (start)" : ""), sum));
    if (!sum.is_warm_up) total += sum;
  }
  if (total.steps > 0) table.rows.push_back(cells_of("after the start", total));
  const std::string text = table.text();
  return efficiency_ ? text + "  " + efficiency_text(*efficiency_) : text.substr(0, text.size() - 1);
}

// Two points make no curve: a run of a few steps closes without one.
void ClosingCurve::end() {
  constexpr size_t kFewestPoints = 5;
  constexpr int kMostColumns = 100, kRows = 12;
  const int columns = terminal_columns(STDERR_FILENO);
  if (columns == 0) return;
  RunHistory history;
  read_metrics(metrics_path_, std::numeric_limits<int64_t>::max(), history);
  const std::vector<CurvePoint> training = history.loss.means();
  if (training.size() < kFewestPoints) return;
  log::info(draw_loss_curve({{"training", training}, {"validation", history.validation_loss.points()}},
                            std::min(columns, kMostColumns), kRows, locale_is_utf8()));
}

}  // namespace gpt::report
