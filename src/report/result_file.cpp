#include "gpt/report/result_file.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/printable.h"
#include "gpt/core/running_clock.h"
#include "gpt/core/version.h"
#include "json_number.h"

namespace gpt::report {
namespace {

using nlohmann::ordered_json;

ordered_json rounded(double seconds) { return json_number(std::round(1e3 * seconds) / 1e3); }

// With the names of metrics.jsonl. The interval holds the loss of the whole split 95 times in 100.
ordered_json to_json(const std::optional<EvaluationRecord>& evaluation) {
  constexpr double kQuantile = 1.96;
  if (!evaluation) return {};
  ordered_json object{{"step", evaluation->step},
                      {"val_loss", json_number(evaluation->loss)},
                      {"val_perplexity", json_number(evaluation->perplexity())}};
  if (evaluation->bits_per_byte) object["val_bits_per_byte"] = json_number(*evaluation->bits_per_byte);
  if (!evaluation->standard_error) return object;
  const double error = *evaluation->standard_error, width = kQuantile * error;
  object["val_loss_error"] = json_number(error);
  object["val_loss_interval"] = {json_number(evaluation->loss - width), json_number(evaluation->loss + width)};
  if (evaluation->bits_per_byte) {
    const double bits = *evaluation->bits_per_byte, per_nat = bits / evaluation->loss;
    object["val_bits_per_byte_interval"] = {json_number(bits - width * per_nat), json_number(bits + width * per_nat)};
  }
  return object;
}

// Whether the file has the result of a run, or of a sweep. JSON lines that someone learns from begin with a brace, too.
bool holds_result(const std::string& path) {
  constexpr SizeLimit kResultLimit{"a result", 64 << 20};
  const std::string text = read_file(path, ExitCode::config, kResultLimit);
  if (text.empty()) return true;
  const ordered_json json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_of_sweep = json.is_array() && (json.empty() || (json[0].is_object() && json[0].contains("sweep")));
  return is_of_sweep || (json.is_object() && json.contains("state") && json.contains("total_steps"));
}

}  // namespace

void require_result_file(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw Error(ExitCode::config, fmt::format("--result: {} is not a regular file: name one, or leave --result out and "
                                              "let --json write to standard output",
                                              path));
  }
  if (std::filesystem::exists(status) && !holds_result(path)) {
    throw Error(ExitCode::config,
                fmt::format("--result: {} exists and holds no result: name a file that is free, or remove it", path));
  }
  if (const std::filesystem::path folder = std::filesystem::path(path).parent_path(); !folder.empty())
    create_folders(folder);
  const AtomicFile writable(path);
}

void ResultFile::begin(const RunRecord& run) {
  run_ = run;
  read_metrics(metrics_path_, run.first_step, history_);
  last_step_ = run.first_step;
  loss_ = std::numeric_limits<double>::quiet_NaN();
  if (history_.last_step) loss_ = history_.last_step->loss, tokens_ = history_.last_step->at.tokens;
  before_training_ = seconds_since_start();
  if (!path_.empty()) write_file(text("running", last_step_));  // what is left where the run is killed
}

void ResultFile::step(const StepRecord& step) {
  history_.add(step);
  last_step_ = step.step, loss_ = step.loss, tokens_ = step.at.tokens;
}

void ResultFile::losses(const std::vector<LossRecord>& losses) {
  if (losses.empty()) return;
  last_step_ = losses.back().step, loss_ = losses.back().loss, tokens_ = losses.back().at.tokens;
}

void ResultFile::evaluation(const EvaluationRecord& evaluation) {
  history_.add(evaluation);
  validating_ += evaluation.seconds;
}

void ResultFile::task(const TaskRecord& task) { validating_ += task.seconds; }

std::string ResultFile::text(const std::string& state, int64_t step) const {
  const double all = seconds_since_start();
  ordered_json result{{"state", state},
                      {"step", step},
                      {"total_steps", run_.total_steps},
                      {"loss", json_number(loss_)},
                      {"validation", to_json(history_.last_evaluation)},
                      {"best_validation", to_json(history_.best_evaluation)},
                      {"tokens", tokens_},
                      {"parameters", run_.parameters}};
  result["seconds"] = {{"all", rounded(all)},
                       {"before_training", rounded(before_training_)},
                       {"updates", rounded(trained_.seconds)},
                       {"validation", rounded(validating_)},
                       {"other", rounded(all - before_training_ - trained_.seconds - validating_)},
                       {"updates_in_all", rounded(history_.seconds)}};
  result["tokens_per_second"] = json_number(history_.tokens / history_.seconds);
  result["peak_memory_mb"] = history_.last_step ? json_number(history_.last_step->peak_memory_mb) : ordered_json();
  result["share_of_limit"] = share_of_limit_ ? json_number(*share_of_limit_) : ordered_json();
  result["seed"] = run_.seed;
  result["output_dir"] = run_.folder;
  result["version"] = version_text().substr(0, version_text().find('\n'));
  for (const auto& [key, value] : run_.settings) result["settings"][key] = value;
  return result.dump(2, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) + "\n";
}

void ResultFile::write_file(const std::string& text) const {
  AtomicFile file(path_, text.size());
  file.write(text);
  file.commit();
}

void ResultFile::write(const std::string& state, int64_t step) const {
  const std::string result = text(state, step);
  if (!path_.empty()) write_file(result);
  if (prints_) print(result);
}

}  // namespace gpt::report
