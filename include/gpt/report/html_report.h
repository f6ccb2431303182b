// report.html: the whole run on one page, in one file that opens in any browser and needs no network. It holds the curves
// (thinned, see curve.h), the samples, the events, the configuration and the machine as JSON, and the script that shows them.
//
// The file is replaced atomically when the run begins, stops and ends, at every evaluation, sample and event, and by a logged step
// that comes kRefreshSeconds or more after the last time. A resumed run reads back what its earlier starts reported. A run that is killed
// leaves a page which says that it trains: by the viewer's clock, and the longest time between two pages so far, the page says itself when
// that has become unlikely.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "gpt/core/running_clock.h"
#include "gpt/report/listener.h"
#include "gpt/report/run_history.h"

namespace gpt::report {

class HtmlReport : public Listener {
 public:
  static constexpr int kRefreshSeconds = 60;

  // `metrics_path`: the run's metrics.jsonl, read when the run begins; there need not be one. The functions throw
  // gpt::Error(disk) when a file cannot be read or written; what they were told then appears with the next attempt.
  HtmlReport(std::string path, std::string metrics_path);

  void begin(const RunRecord& run) override;
  void length(int64_t total_steps, double epochs) override { run_.lasts(total_steps, epochs); }
  void step(const StepRecord& step) override;
  void losses(const std::vector<LossRecord>& losses) override;
  void evaluation(const EvaluationRecord& evaluation) override;
  void task(const TaskRecord& task) override;
  void efficiency(const EfficiencyRecord& efficiency) override;
  void sample(const SampleRecord& sample) override;
  void event(const EventRecord& event) override;
  void stop(const StopRecord& stop) override;
  void end() override;

 private:
  bool read_earlier_starts();  // whether the last one ended without a word
  std::string json() const;
  void write();

  std::string path_, metrics_path_;
  RunRecord run_;
  RunHistory history_;
  int64_t step_ = 0;
  std::optional<EfficiencyRecord> efficiency_;
  bool has_ended_ = false;
  std::string stopped_;  // why, for a run that stopped before its end
  std::optional<RunningClock::time_point> written_;
  RunningClock::duration longest_silence_{0};  // between two times
};

// What the report of a run says of it.
struct LeftReport {
  ReportedState state;
  int64_t step = 0, total_steps = 0, parameters = 0;
  double epochs = 0, written = 0;
  std::string machine, configuration;
  std::optional<double> efficiency = {}, best_validation_loss = {};
};

// Nothing where there is no report that can be read. Its samples and events go into `history`, unless that is null.
std::optional<LeftReport> read_report(const std::string& path, RunHistory* history);

// What the report of a run says of its state; nothing where there is no report that can be read.
std::optional<ReportedState> reported_state(const std::string& path);

}  // namespace gpt::report
