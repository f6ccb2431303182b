// Within its scope a model drops nothing out.
#pragma once

#include "gpt/model/gpt.h"

namespace gpt::model {

class EvaluationMode {
 public:
  explicit EvaluationMode(GPT& model) : model_(model), was_training_(model.training()) { model_.train(false); }
  ~EvaluationMode() { model_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  GPT& model_;
  bool was_training_;
};

}  // namespace gpt::model
