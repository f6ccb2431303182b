// What came of a run, as one object of JSON for programs that start many and compare them: written when the run ends or stops, and again by
// each later start. Until then it says "running".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "gpt/report/listener.h"
#include "gpt/report/run_history.h"

namespace gpt::report {

class ResultFile : public Listener {
 public:
  // Writes into the file, unless `path` is empty, and to standard output if `prints`. What earlier starts did is read from `metrics_path`.
  ResultFile(std::string path, bool prints, std::string metrics_path)
      : path_(std::move(path)), prints_(prints), metrics_path_(std::move(metrics_path)) {}

  void begin(const RunRecord& run) override;
  void length(int64_t total_steps, double epochs) override { run_.lasts(total_steps, epochs); }
  void step(const StepRecord& step) override;
  void losses(const std::vector<LossRecord>& losses) override;
  void evaluation(const EvaluationRecord& evaluation) override;
  void task(const TaskRecord& task) override;
  void timing(const TimingRecord& timing) override { trained_ += timing; }
  void efficiency(const EfficiencyRecord& efficiency) override { share_of_limit_ = efficiency.share(); }
  void stop(const StopRecord& stop) override { write("stopped " + stop.why, stop.step); }
  void end() override { write("done", last_step_); }

 private:
  std::string text(const std::string& state, int64_t step) const;
  void write_file(const std::string& text) const;
  void write(const std::string& state, int64_t step) const;

  std::string path_;
  bool prints_;
  std::string metrics_path_;
  RunRecord run_;
  RunHistory history_;
  int64_t last_step_ = 0, tokens_ = 0;
  double loss_ = 0, before_training_ = 0, validating_ = 0;
  TimingRecord trained_;
  std::optional<double> share_of_limit_;
};

// Makes the file's folder, before the run. Throws gpt::Error: disk where the file cannot be written, and config where it is a folder or a
// device, or holds something else than a result.
void require_result_file(const std::string& path);

}  // namespace gpt::report
