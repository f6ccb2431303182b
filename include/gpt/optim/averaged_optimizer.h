// Exponential averages of the weights (Polyak and Juditsky, 1992), beside another optimizer, which changes the weights themselves: after each
// update average = decay average + (1 - decay) weight, in float32. Until training.average_after of the run is done, and after the first
// update, the averages are the weights. Where an update is skipped they stay. They are one more slot of the state (optimizer_state.h), the
// last one, so that whoever divides, saves and counts the state does so with them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/training_config.h"
#include "gpt/optim/optimizer.h"
#include "gpt/parameters/parameters.h"

namespace gpt::optim {

class AveragedOptimizer : public Optimizer {
 public:
  // "fused AdamW, with averages of the weights (ema_decay 0.999)".
  static std::string name(const std::string& of_weights, const OptimizerConfig& config);

  // `of_weights`: without averages, of these parameters, whose values the averages begin with.
  AveragedOptimizer(std::unique_ptr<Optimizer> of_weights, const parameters::Parameters& parameters,
                    const OptimizerConfig& config);

  // How much of the run is done before the next update, from 0 to 1. Until it is said once, the averages stay.
  void set_progress(double share_done);
  void step(const UpdateScalars& scalars) override;

  // Values and averages of this optimizer's spans change places, in the memory where they are. Copies of 16 bits are the caller's. Throws
  // c10::Error where values are not float32.
  void swap() const;

  const std::vector<StateStretch>& stretches() const override;
  OptimizerState state() const override;
  // Averages that the state does not have begin with the values as they are now, with a line in the log.
  void load(const OptimizerState& state) override;
  const at::Tensor& step_count() const override { return of_weights_->step_count(); }
  StateBytes bytes() const override { return state_bytes(stretches_); }

 private:
  void begin() const;

  std::unique_ptr<Optimizer> of_weights_;
  parameters::Parameters parameters_;
  OptimizerConfig config_;
  std::vector<StateStretch> stretches_;  // those of the other, with the averages behind
  at::Tensor rate_;                      // float32 scalar on the device: what the next update takes of the weights
  std::optional<double> known_rate_;
};

// Null where the optimizer keeps none.
AveragedOptimizer* averages_of(Optimizer& optimizer);

}  // namespace gpt::optim
