#include "gpt/report/status_file.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <string_view>

#include "gpt/core/file.h"
#include "gpt/core/running_clock.h"
#include "json_number.h"

namespace gpt::report {
namespace {

using nlohmann::ordered_json;

constexpr std::chrono::seconds kBetweenTimes(1);
constexpr const char* kStates[] = {"running", "stopped", "done"};

ordered_json evaluation_of(const std::optional<EvaluationRecord>& evaluation) {
  if (!evaluation) return nullptr;
  ordered_json object{{"step", evaluation->step}, {"val_loss", json_number(evaluation->loss)}};
  if (evaluation->bits_per_byte) object["val_bits_per_byte"] = json_number(*evaluation->bits_per_byte);
  return object;
}

template <class Number>
Number number_in(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<Number>() : Number{};
}

std::string text_in(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<EvaluationRecord> evaluation_in(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_object()) return std::nullopt;
  EvaluationRecord evaluation{.step = number_in<int64_t>(*found, "step"),
                              .loss = std::numeric_limits<double>::quiet_NaN(),
                              .bits_per_byte = std::nullopt};
  if (found->contains("val_loss") && (*found)["val_loss"].is_number())
    evaluation.loss = number_in<double>(*found, "val_loss");
  if (found->contains("val_bits_per_byte")) evaluation.bits_per_byte = number_in<double>(*found, "val_bits_per_byte");
  return evaluation;
}

}  // namespace

std::string to_json(const RunStatus& status) {
  const ordered_json object{{"state", kStates[static_cast<int>(status.state)]},
                            {"why", status.why},
                            {"step", status.step},
                            {"total_steps", status.total_steps},
                            {"activity", status.activity},
                            {"how_far", status.how_far},
                            {"remaining_seconds", json_number(std::round(10 * status.remaining_seconds) / 10)},
                            {"parameters", status.parameters},
                            {"epochs", json_number(status.epochs)},
                            {"validation", evaluation_of(status.validation)},
                            {"best_validation", evaluation_of(status.best_validation)},
                            {"written", std::round(1e3 * status.written) / 1e3}};
  return object.dump(-1, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) + "\n";
}

std::optional<RunStatus> read_status(std::string_view json) {
  const ordered_json object = ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  const auto* const state = std::find(std::begin(kStates), std::end(kStates), text_in(object, "state"));
  if (state == std::end(kStates)) return std::nullopt;
  return RunStatus{.state = static_cast<RunStatus::State>(state - kStates),
                   .why = text_in(object, "why"),
                   .step = number_in<int64_t>(object, "step"),
                   .total_steps = number_in<int64_t>(object, "total_steps"),
                   .parameters = number_in<int64_t>(object, "parameters"),
                   .epochs = number_in<double>(object, "epochs"),
                   .activity = text_in(object, "activity"),
                   .how_far = text_in(object, "how_far"),
                   .remaining_seconds = number_in<double>(object, "remaining_seconds"),
                   .written = number_in<double>(object, "written"),
                   .validation = evaluation_in(object, "validation"),
                   .best_validation = evaluation_in(object, "best_validation")};
}

void StatusFile::begin(const RunRecord& run) {
  status_ = {.step = run.first_step,
             .total_steps = run.total_steps,
             .parameters = run.parameters,
             .epochs = run.epochs,
             .activity = "starting"};
  history_ = RunHistory();
  if (run.first_step > 0) read_metrics(metrics_path_, run.first_step, history_);
  write();
}

void StatusFile::length(int64_t total_steps, double epochs) {
  status_.total_steps = total_steps, status_.epochs = epochs;
}

void StatusFile::evaluation(const EvaluationRecord& evaluation) {
  history_.add(evaluation);
  status_.step = evaluation.step;
  write();
}

void StatusFile::activity(const ActivityRecord& activity) {
  const bool is_another = activity.what != status_.activity;
  status_.activity = activity.what, status_.how_far = activity.how_far;
  status_.remaining_seconds = activity.remaining_seconds;
  is_another ? (status_.step = activity.step, write()) : reach(activity.step);
}

void StatusFile::stop(const StopRecord& stop) {
  status_.state = RunStatus::State::stopped, status_.why = stop.why, status_.step = stop.step;
  write();
}

void StatusFile::end() {
  status_.state = RunStatus::State::done;
  write();
}

void StatusFile::reach(int64_t step) {
  status_.step = step;
  if (std::chrono::steady_clock::now() - written_ >= kBetweenTimes) write();
}

// Training does not wait for the disk. A failed attempt counts as one.
void StatusFile::write() {
  written_ = std::chrono::steady_clock::now();
  status_.written = seconds_since_1970();
  status_.validation = history_.last_evaluation, status_.best_validation = history_.best_evaluation;
  if (status_.state != RunStatus::State::running) status_.activity.clear(), status_.how_far.clear();
  const std::string text = to_json(status_);
  AtomicFile file(path_, text.size());
  file.write(text);
  file.commit(Durability::unsynced);
}

}  // namespace gpt::report
