#include "gpt/ops/verdict.h"

#include <ATen/ops/zeros.h>

#include "kernels.h"

namespace gpt::ops {
namespace {

at::Tensor zero(at::Device device, at::ScalarType type) { return at::zeros({}, at::TensorOptions(device).dtype(type)); }

void check(const at::Tensor& scalar, at::ScalarType type, at::Device device) {
  TORCH_CHECK(scalar.dim() == 0 && scalar.scalar_type() == type && scalar.device() == device, "verdict: a scalar of ",
              type, " on ", device, " is needed, got ", scalar.sizes(), " of ", scalar.scalar_type(), " on ",
              scalar.device());
}

}  // namespace

Verdict new_verdict(at::Device device) {
  return {.grad_norm = zero(device, at::kFloat),
          .skipped = zero(device, at::kFloat),
          .divisor = zero(device, at::kFloat)};
}

UpdateCounts no_updates(at::Device device) {
  return {.skipped = zero(device, at::kLong),
          .skipped_in_a_row = zero(device, at::kLong),
          .loss_sum = zero(device, at::kDouble),
          .token_sum = zero(device, at::kDouble)};
}

void judge(const Evidence& evidence, double max_norm, const Verdict& verdict, const UpdateCounts& counts) {
  const at::Device device = evidence.loss.device();
  for (const at::Tensor* scalar :
       {&evidence.loss, &evidence.norm, &verdict.grad_norm, &verdict.skipped, &verdict.divisor})
    check(*scalar, at::kFloat, device);
  for (const at::Tensor* scalar : {&evidence.scale, &evidence.tokens}) {
    if (scalar->defined()) check(*scalar, at::kFloat, device);
  }
  for (const at::Tensor* count : {&counts.skipped, &counts.skipped_in_a_row}) check(*count, at::kLong, device);
  for (const at::Tensor* sum : {&counts.loss_sum, &counts.token_sum}) check(*sum, at::kDouble, device);
  kernels_of(evidence.loss).judge(evidence, max_norm, verdict, counts);
}

}  // namespace gpt::ops
