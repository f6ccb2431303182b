#include "gpt/train/evaluator.h"

#include <ATen/core/grad_mode.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <numbers>

namespace gpt {

Evaluator::Evaluator(const Corpus& corpus, int64_t batch_size, int64_t block_size, int64_t eval_batches, at::Device device,
                     const Precision& precision)
    : batches_(corpus.validation, batch_size, block_size, device),
      count_(eval_batches == 0 ? batches_.size() : std::min(eval_batches, batches_.size())),
      device_(device),
      compute_type_(precision.autocast ? precision.compute_type() : at::kFloat) {
  if (empty()) return;
  // The first batches foresee the tokens from the second on, without gaps. Their bytes are counted once, one by one.
  const int64_t targets = corpus.validation.size() - 1;
  bytes_ = text_bytes(corpus, corpus.validation.slice(1, 1 + std::min(targets, count_ * batch_size * block_size)));
  if (bytes_ == 0) bytes_.reset();
}

Evaluation Evaluator::run(GPT& model, const std::function<bool()>& stop) const {
  at::NoGradGuard no_grad;
  const bool was_training = model.training();
  model.train(false);
  // The sum stays on the device, so that a GPU never waits for the host between batches.
  at::Tensor sum = at::zeros({}, at::TensorOptions(device_).dtype(at::kDouble));
  int64_t tokens = 0;
  bool stopped = false;
  for (int64_t i = 0; i < count_ && !(stopped = stop()); ++i) {
    const Batch batch = batches_[i];
    Autocast autocast(device_, compute_type_);
    sum += model.loss(batch.inputs, batch.targets).to(at::kDouble) * static_cast<double>(batch.inputs.numel());
    tokens += batch.inputs.numel();
  }
  model.train(was_training);
  if (stopped) return {.loss = std::numeric_limits<double>::quiet_NaN(), .bits_per_byte = {}};
  const double nats = sum.item<double>();  // sync: once an evaluation
  Evaluation result{.loss = nats / static_cast<double>(tokens), .bits_per_byte = {}};
  if (bytes_) result.bits_per_byte = nats / std::numbers::ln2 / *bytes_;
  return result;
}

}  // namespace gpt
