// Within its scope the model computes with what training.evaluate names: with its weights, or with their averages, which have then changed
// places with them. All processes of the run enter and leave it together, and nothing is saved or updated meanwhile.
#pragma once

#include "gpt/config/training_config.h"
#include "gpt/optim/averaged_optimizer.h"
#include "gpt/run/state.h"

namespace gpt::run {

class WeightsToEvaluate {
 public:
  // The state must outlive it.
  WeightsToEvaluate(State& state, const CadenceConfig& config);
  ~WeightsToEvaluate();
  WeightsToEvaluate(const WeightsToEvaluate&) = delete;
  WeightsToEvaluate& operator=(const WeightsToEvaluate&) = delete;

 private:
  void values_changed() const;

  const model::GPT& model_;
  optim::AveragedOptimizer* const averages_;  // null: the weights are evaluated
};

}  // namespace gpt::run
