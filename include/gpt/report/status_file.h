// status.json: what a run does now, in one small object that is replaced whenever that changes and about once a second otherwise. One that
// was killed leaves "running" there: whether a process still has the folder, its lock says (core/lock.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gpt/report/listener.h"
#include "gpt/report/run_history.h"

namespace gpt::report {

struct RunStatus {
  enum class State { running, stopped, done };
  State state = State::running;
  std::string why = {};  // it was stopped, as StopRecord says
  int64_t step = 0, total_steps = 0, parameters = 0;
  double epochs = 0;
  std::string activity = {}, how_far = {};                                // as ActivityRecord says
  double remaining_seconds = 0;                                           // 0: not known
  double written = 0;                                                     // seconds since 1970, UTC
  std::optional<EvaluationRecord> validation = {}, best_validation = {};  // of all starts
};

std::string to_json(const RunStatus& status);
// Nothing where the text is none, such as half of one.
std::optional<RunStatus> read_status(std::string_view json);

class StatusFile : public Listener {
 public:
  // What earlier starts found is read from `metrics_path`.
  StatusFile(std::string path, std::string metrics_path)
      : path_(std::move(path)), metrics_path_(std::move(metrics_path)) {}

  void begin(const RunRecord& run) override;
  void length(int64_t total_steps, double epochs) override;
  void step(const StepRecord& step) override { reach(step.step); }
  void evaluation(const EvaluationRecord& evaluation) override;
  void activity(const ActivityRecord& activity) override;
  void stop(const StopRecord& stop) override;
  void end() override;

 private:
  void reach(int64_t step);
  void write();

  std::string path_, metrics_path_;
  RunStatus status_;
  RunHistory history_;
  std::chrono::steady_clock::time_point written_{};  // also while a pause lasts
};

}  // namespace gpt::report
