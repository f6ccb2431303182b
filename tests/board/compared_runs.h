// Runs as a comparison takes them.
#pragma once

#include <string>

#include "gpt/board/run_groups.h"

namespace gpt::test {

// With a loss of its own, and another seed or rate.
inline board::RunSummary run_of(const std::string& folder, double loss, int64_t seed, double rate,
                                const std::string& text = "texts") {
  board::RunSummary run{.folder = folder, .history = {}, .config = Config()};
  run.config->data.text = text;
  run.config->seed = seed;
  run.config->training.schedule.learning_rate = rate;
  run.history.add(report::StepRecord{.step = 100, .loss = loss, .mfu = {}});
  run.history.add(report::EvaluationRecord{.step = 100, .loss = loss, .bits_per_byte = loss / 3});
  return run;
}

}  // namespace gpt::test
