#include "gpt/run/weights_to_evaluate.h"

#include <exception>

namespace gpt::run {

WeightsToEvaluate::WeightsToEvaluate(State& state, const CadenceConfig& config)
    : model_(state.model),
      averages_(config.evaluates == EvaluatedWeights::averages ? optim::averages_of(*state.optimizer) : nullptr) {
  if (!averages_) return;
  if (model_.layer_weights()) model_.layer_weights()->await_all();  // what is on its way to others is still read
  averages_->swap();
  values_changed();
}

WeightsToEvaluate::~WeightsToEvaluate() {
  if (!averages_) return;
  try {
    if (model_.layer_weights()) model_.layer_weights()->await_all();
  } catch (const std::exception&) {}  // another process is lost, which the next one who asks it learns
  try {
    averages_->swap();
    values_changed();
  } catch (const std::exception&) {}
}

void WeightsToEvaluate::values_changed() const {
  model_.parameters().round_values();
  if (model_.layer_weights()) model_.layer_weights()->values_changed();
}

}  // namespace gpt::run
