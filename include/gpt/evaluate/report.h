// Results, for people as a table and for programs as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpt/evaluate/evaluate.h"
#include "gpt/evaluate/metrics.h"

namespace gpt::evaluate {

// All of one task, or of the text.
struct TaskResult {
  std::string name;                 // of the task; "text" for --data
  std::vector<std::string> inputs;  // files
  Form form;
  std::vector<Outcome> outcomes;   // not empty
  int64_t limit = 0;               // that there was; 0: none
  int64_t window = 0, stride = 0;  // stride: of a text
  bool has_prefix = true;          // the first token of a text was predicted too

  std::vector<Metric> metrics() const { return metrics_of(form, outcomes, window); }
};

// What was evaluated, in a line, then its metrics, and what else has to be known about them.
std::string table(const TaskResult& result);

struct ModelFacts {
  std::string checkpoint, hash, dtype, device;
  int64_t parameters = 0;
};

// One object in several lines.
std::string json_report(const ModelFacts& model, const std::vector<TaskResult>& results);

}  // namespace gpt::evaluate
