#include "gpt/train/evaluator.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <numbers>
#include <optional>

#include "gpt/core/map_faults.h"
#include "gpt/ops/sdp_backends.h"

namespace gpt {

namespace {

int64_t count_batches(int64_t all, std::optional<int64_t> eval_batches, int64_t batch_size, int64_t block_size) {
  if (eval_batches == 0) return all;
  return std::min(all, eval_batches.value_or((automatic_eval_sequences(block_size) + batch_size - 1) / batch_size));
}

}  // namespace

int64_t automatic_eval_sequences(int64_t block_size) { return 400 + 48000 / block_size; }

int64_t evaluation_tokens(const TrainingConfig& training, int64_t block_size, int64_t validation_tokens) {
  const int64_t all = std::max<int64_t>(0, validation_tokens - 1);
  const int64_t batches = (all + training.batch_size * block_size - 1) / (training.batch_size * block_size);
  return std::min(all, count_batches(batches, training.cadence.eval_batches, training.batch_size, block_size) *
                           training.batch_size * block_size);
}

double evaluation_steps(const TrainingConfig& training, int64_t block_size, int64_t tokens) {
  const int64_t step_tokens = training.batch_size * training.gradient_accumulation_steps * block_size;
  return static_cast<double>(tokens) / static_cast<double>(3 * step_tokens);
}

Evaluator::Evaluator(const Corpus& corpus, int64_t batch_size, int64_t block_size, std::optional<int64_t> eval_batches,
                     at::Device device, const Precision& precision)
    : batches_(corpus.validation, batch_size, block_size, device),
      count_(count_batches(batches_.size(), eval_batches, batch_size, block_size)),
      device_(device),
      autocast_type_(precision.autocast_type()) {
  // The bytes are counted once, one stretch of consecutive batches at a time.
  double bytes = 0;
  bool known = true;
  for (int64_t i = 0; i < count_ && known;) {
    auto [begin, end] = batches_.targets(batch_index(i));
    while (++i < count_ && batches_.targets(batch_index(i)).first == end) end = batches_.targets(batch_index(i)).second;
    const auto part = text_bytes(corpus, corpus.validation.slice(begin, end));
    known = part.has_value();
    bytes += part.value_or(0);
  }
  for (int64_t i = 0; i < count_; ++i) {
    const auto [begin, end] = batches_.targets(batch_index(i));
    tokens_ += end - begin;
  }
  if (known && bytes > 0) bytes_ = bytes;
}

Evaluation Evaluator::run(GPT& model, const std::function<bool(double share)>& stop) const {
  at::NoGradGuard no_grad;
  const EvaluationMode evaluation(model);
  // The sum stays on the device, so that a GPU never waits for the host between batches.
  at::Tensor sum = at::zeros({}, at::TensorOptions(device_).dtype(at::kDouble));
  bool stopped = false;
  for (int64_t i = 0; i < count_ && !(stopped = stop(static_cast<double>(i) / static_cast<double>(count_))); ++i) {
    const Batch batch = batches_[batch_index(i)];
    Autocast autocast(device_, autocast_type_);
    std::optional<ops::OnlySdpBackends> kernels;
    if (batch.inputs.size(1) == 1) kernels.emplace(ops::without_cudnn());  // what is left of the validation tokens
    sum += model.loss(batch.inputs, batch.targets).to(at::kDouble) * static_cast<double>(batch.inputs.numel());
  }
  if (stopped) return {.loss = std::numeric_limits<double>::quiet_NaN(), .bits_per_byte = {}};
  const double nats = sum.item<double>();  // sync: once per evaluation
  map_faults::require_intact();
  Evaluation result{.loss = nats / static_cast<double>(tokens_), .bits_per_byte = {}};
  if (bytes_) result.bits_per_byte = nats / std::numbers::ln2 / *bytes_;
  return result;
}

}  // namespace gpt
