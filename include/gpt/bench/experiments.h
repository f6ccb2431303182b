// Techniques of training beside the plain run: `gpt-bench experiments`. Each learns from the same tokens as the plain run, with several
// seeds; what is said of it follows from the differences between runs of the same seed, and from how much these differ among themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpt/bench/effort.h"
#include "gpt/bench/findings.h"
#include "gpt/bench/learning.h"
#include "gpt/bench/rung.h"
#include "gpt/config/config.h"
#include "gpt/core/file.h"

namespace gpt::bench {

struct Experiment {
  std::string name;
  std::string settings;  // what it sets, as a person would write it
  std::function<void(Config& config, int64_t updates)> apply;
  std::string obstacle = {};  // why it cannot be measured here; empty: it can
};

// Experiments that `wanted` does not have already. The ones that cost no more than the plain run come first.
std::vector<Experiment> experiments(const Config& wanted);

// What has been measured, in a file of JSON lines that a later start goes on with. It belongs to a configuration, a length of time, a
// commit and a processor, which its name tells.
class ExperimentLog {
 public:
  // The file in `folder` for this; what is there is read, except for a line that a kill left unfinished. Throws gpt::Error(disk).
  ExperimentLog(const std::string& folder, const Config& wanted, double seconds, const std::string& processor);

  const std::string& path() const { return path_; }
  bool is_new() const { return known_.empty(); }
  std::optional<std::string> find(const std::string& key) const;  // an object
  void add(const std::string& key, const std::string& json);

 private:
  std::string path_;
  std::map<std::string, std::string> known_;
  std::optional<AppendFile> file_;
};

inline constexpr int64_t kSeeds = 3;

struct ExperimentRow {
  std::string name, settings;
  std::vector<Learning> runs;       // one for each seed; none where it could not be measured
  std::vector<double> step_ratios;  // of the time of a step to the plain run's: one for each pair of runs
  std::string verdict;              // or why there are no runs
};

// A mean difference from the plain run, and half of its 95 % interval, by Student's t: infinite for one difference alone.
struct Difference {
  double mean = 0, half = 0;
};
Difference difference_of(const std::vector<double>& differences);

struct ExperimentComparison {
  std::vector<ExperimentRow> rows;  // the first is the plain run
  LearningLength length;
  int64_t eval_batches = 0, batch_size = 0;
  std::vector<std::string> left_out;  // for want of time
  bool complete = false;              // not stopped by a signal
};

// Measures as many experiments as fit into the time, in the order of `list`; what the log has is not measured again. Throws gpt::Error
// where the plain run cannot be measured.
ExperimentComparison compare_experiments(const Wanted& wanted, const std::vector<Experiment>& list, double seconds,
                                         ExperimentLog& log, const Measure& measure, const Learn& learn,
                                         const Progress& progress);

Findings findings(const ExperimentComparison& comparison);

}  // namespace gpt::bench
