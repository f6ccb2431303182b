#include "gpt/ops/token_gather.h"

#include <ATen/ops/empty.h>

#include "kernels.h"

namespace gpt::ops {
namespace {

void check_output(const at::Tensor& output, const char* name, const at::Tensor& tokens, const at::Tensor& starts) {
  TORCH_CHECK(output.dim() == 2 && output.size(0) == starts.size(0) && output.scalar_type() == at::kLong &&
                  output.is_contiguous() && output.device() == tokens.device(),
              "token_gather: ", name, " must be a contiguous (", starts.size(0), ", T) int64 tensor on ",
              tokens.device(), ", got ", output.sizes(), " ", output.scalar_type(), " on ", output.device());
}

}  // namespace

void token_gather_out(const at::Tensor& inputs, const at::Tensor& targets, const at::Tensor& tokens,
                      const at::Tensor& starts) {
  TORCH_CHECK(tokens.dim() == 1 && tokens.is_contiguous(), "token_gather: tokens must be (N) and contiguous, got ",
              tokens.sizes());
  TORCH_CHECK(tokens.scalar_type() == at::kUInt16 || tokens.scalar_type() == at::kInt,
              "token_gather: tokens must be uint16 or int32, got ", tokens.scalar_type());
  TORCH_CHECK(starts.dim() == 1 && starts.is_contiguous() && starts.scalar_type() == at::kLong,
              "token_gather: starts must be (B) int64 and contiguous, got ", starts.sizes(), " ", starts.scalar_type());
  TORCH_CHECK(starts.device() == tokens.device(), "token_gather: tokens are on ", tokens.device(), " but starts on ",
              starts.device());
  check_output(inputs, "inputs", tokens, starts);
  check_output(targets, "targets", tokens, starts);
  TORCH_CHECK(inputs.size(1) == targets.size(1), "token_gather: inputs have ", inputs.size(1), " columns but targets ",
              targets.size(1));
  if (inputs.numel() == 0) return;
  kernels_of(tokens)->token_gather(inputs, targets, tokens, starts);
}

std::pair<at::Tensor, at::Tensor> token_gather(const at::Tensor& tokens, const at::Tensor& starts, int64_t block_size) {
  const auto options = starts.options().dtype(at::kLong);
  const at::Tensor inputs = at::empty({starts.size(0), block_size}, options);
  const at::Tensor targets = at::empty({starts.size(0), block_size}, options);
  token_gather_out(inputs, targets, tokens, starts);
  return {inputs, targets};
}

}  // namespace gpt::ops
