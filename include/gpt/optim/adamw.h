// AdamW (Loshchilov and Hutter, 2019) over the flat buffers, in one kernel (ops/adamw.h) for each StateRange. Moments in the memory
// of the host are not copied: the kernel reads and writes them there, each byte once in each direction. Weight decay follows the
// rows of the parameter table. Everything that changes between steps is a device tensor, so nothing syncs. One operator of ATen's
// at a time, as `fused_adamw: false` has it, is there to be compared with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "gpt/config/training_config.h"
#include "gpt/optim/optimizer.h"
#include "gpt/parameters/parameters.h"

namespace gpt::optim {

class AdamW : public Optimizer {
 public:
  static std::string_view name(const OptimizerConfig& config);

  // `spans`: what of the flat buffer it updates and remembers.
  AdamW(const parameters::Parameters& parameters, const OptimizerConfig& config,
        const std::vector<layout::FlatSpan>& spans);
  AdamW(const parameters::Parameters& parameters, const OptimizerConfig& config)
      : AdamW(parameters, config, {{0, parameters.layout().trained_size}}) {}

  void step(const UpdateScalars& scalars) override;
  const std::vector<StateStretch>& stretches() const override;
  const at::Tensor& step_count() const override { return step_count_; }
  OptimizerState state() const override;
  StateBytes bytes() const override;
  // Moments of another type are converted, with a line in the log; those of its own type are taken to the bit.
  void load(const OptimizerState& state) override;

 private:
  void step_fused(const UpdateScalars& scalars);
  void step_by_operators(const UpdateScalars& scalars);
  void wait_for_moments() const;  // the host may touch them afterwards

  parameters::Parameters parameters_;
  OptimizerConfig config_;
  std::vector<StateStretch> moments_;
  at::Tensor decays_;      // uint8 for each kParameterAlignment values: 1 where weight decay applies
  at::Tensor step_count_;  // one for all parameters
};

}  // namespace gpt::optim
