// metrics.jsonl: one line of JSON for each step, those that are logged with all that is known of them, for each evaluation, each
// task and each rollback; the last one says how efficient a whole run was. A value that is not finite is null.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/core/file.h"
#include "gpt/report/listener.h"

namespace gpt::report {

class MetricsFile : public Listener {
 public:
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}  // appends
  void begin(const RunRecord& run) override;
  void step(const StepRecord& step) override;
  void losses(const std::vector<LossRecord>& losses) override;
  void evaluation(const EvaluationRecord& evaluation) override;
  void task(const TaskRecord& task) override;
  void event(const EventRecord& event) override;
  void efficiency(const EfficiencyRecord& efficiency) override;

 private:
  AppendFile& file();

  std::string path_;
  std::optional<AppendFile> file_;
};

}  // namespace gpt::report
