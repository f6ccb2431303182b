// Within its scope a model computes with other operators.
#pragma once

#include <utility>

#include "gpt/model/gpt.h"
#include "gpt/ops/operators.h"

namespace gpt::model {

class OperatorsInScope {
 public:
  OperatorsInScope(GPT& model, ops::SharedOperators operators) : model_(model), before_(model.operators()) {
    model_.set_operators(std::move(operators));
  }
  ~OperatorsInScope() { model_.set_operators(before_); }
  OperatorsInScope(const OperatorsInScope&) = delete;
  OperatorsInScope& operator=(const OperatorsInScope&) = delete;

 private:
  GPT& model_;
  const ops::SharedOperators before_;
};

}  // namespace gpt::model
