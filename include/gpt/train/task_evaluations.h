// The tasks of training.eval_tasks, on which a run is evaluated with each validation.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/data/corpus.h"
#include "gpt/distributed/communicator.h"
#include "gpt/evaluate/example.h"
#include "gpt/evaluate/scorer.h"
#include "gpt/model/gpt.h"
#include "gpt/report/listener.h"

namespace gpt::train {

class TaskEvaluations {
 public:
  // Reads all examples, so that what is wrong with them shows before the first update. Throws gpt::Error: config for an unknown task or
  // where the corpus has no tokenizer, data as evaluate::open_task() and its examples do.
  TaskEvaluations(const UpdateConfig& config, const data::Corpus& corpus);

  bool empty() const { return tasks_.empty(); }
  std::string describe() const;  // "hellaswag (200 examples), piqa (50 examples)"

  // A record for each task, without step and moment, in all processes, of which each computes its share; nothing where `stop`, which is asked
  // in each process between batches with the name of the task, has said so in one of them. Throws gpt::Error(numerics) for logits that are
  // not finite.
  std::vector<report::TaskRecord> run(model::GPT& model, at::ScalarType autocast_type, distributed::Communicator& ranks,
                                      const std::function<bool(const std::string& task)>& stop) const;

 private:
  struct Task {
    std::string name;
    evaluate::Form form;
    std::vector<evaluate::Example> examples;
  };
  // Outcomes of all examples, in their order; nothing where it was stopped.
  static std::vector<evaluate::Outcome> outcomes(const Task& task, const evaluate::Scorer& scorer,
                                                 distributed::Communicator& ranks,
                                                 const std::function<bool(const std::string& task)>& stop);

  std::vector<Task> tasks_;
  int64_t window_, batch_size_;
};

}  // namespace gpt::train
