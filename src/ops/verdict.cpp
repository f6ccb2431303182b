#include "gpt/ops/verdict.h"

#include <ATen/ops/zeros.h>

#include "kernels.h"

namespace gpt::ops {
namespace {

at::Tensor zeros_of(at::IntArrayRef shape, at::Device device, at::ScalarType type) {
  return at::zeros(shape, at::TensorOptions(device).dtype(type));
}

at::Tensor zero(at::Device device, at::ScalarType type) { return zeros_of({}, device, type); }

void check(const at::Tensor& scalar, at::ScalarType type, at::Device device) {
  TORCH_CHECK(scalar.dim() == 0 && scalar.scalar_type() == type && scalar.device() == device, "verdict: a scalar of ",
              type, " on ", device, " is needed, got ", scalar.sizes(), " of ", scalar.scalar_type(), " on ",
              scalar.device());
}

void check_spikes(const SpikeWatch& watch, at::Device device) {
  for (const at::Tensor* count : {&watch.accepted, &watch.spikes}) check(*count, at::kLong, device);
  const at::Tensor& window = watch.window;
  TORCH_CHECK(window.dim() == 2 && window.size(0) == 2 && window.size(1) > 0 && window.is_contiguous() &&
                  window.scalar_type() == at::kFloat && window.device() == device,
              "verdict: a window (2, n) of float32 on ", device, " is needed, got ", window.sizes(), " of ",
              window.scalar_type(), " on ", window.device());
}

}  // namespace

Verdict new_verdict(at::Device device) {
  return {.grad_norm = zero(device, at::kFloat),
          .skipped = zero(device, at::kFloat),
          .divisor = zero(device, at::kFloat),
          .spike = zeros_of({3}, device, at::kFloat)};
}

UpdateCounts no_updates(at::Device device) {
  return {.skipped = zero(device, at::kLong),
          .skipped_in_a_row = zero(device, at::kLong),
          .loss_sum = zero(device, at::kDouble),
          .token_sum = zero(device, at::kDouble)};
}

SpikeWatch new_watch(at::Device device, int64_t window, double threshold) {
  return {.window = zeros_of({2, window}, device, at::kFloat),
          .accepted = zero(device, at::kLong),
          .spikes = zero(device, at::kLong),
          .threshold = threshold};
}

std::optional<Spike> spike_of(const Verdict& verdict) {
  const auto place =
      static_cast<int>(verdict.spike.select(0, 0).item<float>());  // sync: whether the run goes on depends on it
  if (place == kNoSpike) return std::nullopt;
  return Spike{.is_in_loss = place == kInLoss,
               .value = verdict.spike.select(0, 1).item<float>(),
               .median = verdict.spike.select(0, 2).item<float>()};
}

void judge(const Evidence& evidence, double max_norm, const Verdict& verdict, const UpdateCounts& counts,
           const SpikeWatch& watch) {
  const at::Device device = evidence.loss.device();
  for (const at::Tensor* scalar :
       {&evidence.loss, &evidence.norm, &verdict.grad_norm, &verdict.skipped, &verdict.divisor})
    check(*scalar, at::kFloat, device);
  for (const at::Tensor* scalar : {&evidence.scale, &evidence.tokens}) {
    if (scalar->defined()) check(*scalar, at::kFloat, device);
  }
  for (const at::Tensor* count : {&counts.skipped, &counts.skipped_in_a_row}) check(*count, at::kLong, device);
  for (const at::Tensor* sum : {&counts.loss_sum, &counts.token_sum}) check(*sum, at::kDouble, device);
  if (watch.window.defined()) check_spikes(watch, device);
  kernels_of(evidence.loss)->judge(evidence, max_norm, verdict, counts, watch);
}

}  // namespace gpt::ops
