// The log lines of a run, and the table and the curve that close it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/report/listener.h"

namespace gpt::report {

// "1.5470", or "1.5470 ± 0.0071" with its standard error.
std::string loss_text(double loss, std::optional<double> standard_error);

// "efficiency 47 %: ...", and by what it is measured.
std::string efficiency_text(const EfficiencyRecord& efficiency);

class Console : public Listener {
 public:
  void begin(const RunRecord& run) override { run_ = run; }
  void length(int64_t total_steps, double epochs) override { run_.lasts(total_steps, epochs); }
  void step(const StepRecord& step) override;
  void evaluation(const EvaluationRecord& evaluation) override;
  void task(const TaskRecord& task) override;
  void epoch(const EpochRecord& epoch) override;
  void sample(const SampleRecord& sample) override;

 private:
  std::string position(int64_t step) const;  // "step  500/5000"
  void tell_findings(const std::vector<DeviceUse>& devices, double time);

  RunRecord run_;
  // What a reading of the device had.
  struct Found {
    int64_t last = -1;  // reading that had it
    double since = 0;   // the time of the first of those in a row
    bool is_told = false;
  };
  int64_t readings_ = 0;
  std::map<DeviceFinding, Found> found_;
  double told_memory_ = 0;  // bytes, as the last line about them says
  EpochRecord fastest_;     // whole epoch so far; its number is 0 before there is one
};

// The table that closes a run: seconds per step and tokens per second, of the start in one row and of the rest in five, and how close
// that comes to what a large product and a large copy would allow.
class TimingTable : public Listener {
 public:
  void begin(const RunRecord& run) override { first_step_ = run.first_step + 1; }
  void timing(const TimingRecord& timing) override;
  void efficiency(const EfficiencyRecord& efficiency) override { efficiency_ = efficiency; }
  void end() override;
  std::string text() const;

 private:
  int64_t first_step_ = 1;
  std::vector<TimingRecord> intervals_;
  std::optional<EfficiencyRecord> efficiency_;
};

// The losses of all starts of the run, drawn at its end where standard error is a terminal.
class ClosingCurve : public Listener {
 public:
  explicit ClosingCurve(std::string metrics_path) : metrics_path_(std::move(metrics_path)) {}
  void end() override;

 private:
  std::string metrics_path_;
};

}  // namespace gpt::report
