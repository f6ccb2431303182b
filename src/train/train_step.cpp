#include "gpt/train/train_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_and.h>

#include "gpt/core/map_faults.h"
#include "gpt/optim/grad_clip.h"

namespace gpt {

TrainStep::TrainStep(GPT& model, AdamW& optimizer, GradScaler& scaler, const Precision& precision,
                     const TrainingConfig& config)
    : model_(model),
      optimizer_(optimizer),
      scaler_(scaler),
      compute_type_(precision.autocast ? precision.compute_type() : at::kFloat),
      config_(config) {}

StepResult TrainStep::run(DataLoader& loader, int64_t micro_batches, double learning_rate,
                          const std::function<bool()>& stop) {
  StepResult result;
  result.tokens = loader.tokens_ahead(micro_batches);
  for (int64_t i = 0; i < micro_batches; ++i) {
    if (i > 0 && stop()) {
      optimizer_.zero_grad();
      return {};
    }
    const Batch batch = loader.next();
    map_faults::require_intact();  // before anything is learned from it
    at::Tensor loss;
    {
      Autocast autocast(model_.device(), compute_type_);
      loss = model_.loss(batch.inputs, batch.targets, config_.label_smoothing);
    }
    if (micro_batches > 1) loss = loss * (static_cast<double>(batch.inputs.numel()) / result.tokens);
    scaler_.scale(loss).backward();
    result.loss = result.loss.defined() ? result.loss + loss.detach() : loss.detach();
  }

  at::NoGradGuard no_grad;
  const auto gradients = optimizer_.gradients();
  at::Tensor scaler_overflow;
  if (scaler_.enabled()) scaler_overflow = scaler_.unscale(gradients);
  result.grad_norm = global_grad_norm(gradients);
  const at::Tensor finite = at::logical_and(at::isfinite(result.loss), at::isfinite(result.grad_norm));
  result.skipped = finite.logical_not().to(at::kFloat);
  optimizer_.step(learning_rate, clip_divisor(result.grad_norm, config_.gradient_clip), result.skipped);
  // The scaler reacts only to the overflows that its scale can cure: those in the gradients.
  if (scaler_.enabled()) scaler_.update(scaler_overflow);
  optimizer_.zero_grad();
  return result;
}

}  // namespace gpt
