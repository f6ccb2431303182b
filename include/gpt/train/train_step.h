// One optimizer update: micro-batches forward and backward, clip, AdamW. Nothing in it reads the device: loss, norm and
// the skip flag stay tensors until a log line asks for them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "gpt/config/training_config.h"
#include "gpt/data/data_loader.h"
#include "gpt/device/precision.h"
#include "gpt/model/gpt.h"
#include "gpt/optim/adamw.h"
#include "gpt/optim/grad_scaler.h"

namespace gpt {

struct StepResult {
  // float32 scalars on the device.
  at::Tensor loss;       // mean over all tokens of the update
  at::Tensor grad_norm;  // before clipping
  at::Tensor skipped;    // 1 when loss or gradients were not finite: nothing was changed
  int64_t tokens = 0;
};

class TrainStep {
 public:
  TrainStep(GPT& model, AdamW& optimizer, GradScaler& scaler, const Precision& precision, const TrainingConfig& config);

  // Takes `micro_batches` batches from `loader`, weighting each by its share of the update's tokens. `stop` is called
  // between micro-batches; when it returns true the gradients are dropped and the result is empty (undefined loss): the
  // caller puts loader and random state back to where the update began. Throws gpt::Error(data) if the token file was
  // truncated in the meantime.
  StepResult run(DataLoader& loader, int64_t micro_batches, double learning_rate, const std::function<bool()>& stop);

 private:
  GPT& model_;
  AdamW& optimizer_;
  GradScaler& scaler_;
  at::ScalarType compute_type_;
  const TrainingConfig config_;
};

}  // namespace gpt
