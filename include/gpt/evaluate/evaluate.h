// The examples of a task through a model. A model in memory and its tokenizer are enough:
//
//   const Encoding encoding(tokenizer, model.config().block_size);
//   const auto source = open_task(parse_task("hellaswag:hellaswag_val.jsonl"), encoding, encoding.window);
//   const Evaluation evaluation = evaluate(Scorer(model, compute_type, 0), *source);
//   const std::vector<Metric> metrics = metrics_of(source->form(), evaluation.outcomes, encoding.window);
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gpt/evaluate/example.h"
#include "gpt/evaluate/scorer.h"

namespace gpt::evaluate {

struct EvaluationOptions {
  int64_t limit = 0;                                // the first so many examples, or documents; 0: all
  std::vector<Outcome> known = {};                  // of the first examples, from an earlier evaluation
  std::function<void(const Outcome&)> keep = {};    // is given each further outcome, in the order of the examples
  std::function<bool(int64_t outcomes)> stop = {};  // asked before each batch, with how many there are so far
};

struct Evaluation {
  std::vector<Outcome> outcomes;  // in the order of the examples
  bool is_complete = true;        // it was not stopped
};

// Throws gpt::Error: data from the source or for an input without anything to score, config where `known` are the outcomes of other
// examples, numerics from the model.
Evaluation evaluate(const Scorer& scorer, ExampleSource& source, const EvaluationOptions& options = {});

}  // namespace gpt::evaluate
