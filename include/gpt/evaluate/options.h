// The command line of gpt-eval.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/data_config.h"
#include "gpt/evaluate/task.h"
#include "gpt/generate/loaded_model.h"

namespace gpt::evaluate {

struct EvalOptions {
  generate::ModelOptions model;
  std::vector<std::string> data;  // texts, as PrepareOptions::inputs
  std::string text_field = "text";
  Learn learn = Learn::answers;  // of conversations
  std::vector<Task> tasks;
  int64_t limit = 0;       // the first so many examples of a task, and documents of a text; 0 = all
  int64_t window = 0;      // tokens that the model sees at once; 0 = the model's block_size
  int64_t stride = 0;      // from one window of a text to the next; 0 = the window
  int64_t batch_size = 0;  // 0 = as Scorer chooses
  std::string output;      // a file of results; empty = none
  bool json = false;       // one object instead of the table
};

// Nothing when --help or --version was answered on standard output. Throws gpt::Error(config).
std::optional<EvalOptions> parse_eval_options(int argc, const char* const* argv);

}  // namespace gpt::evaluate
