// What an operator's device switch calls: one function per device, all with the same signature. The arguments have
// already been checked.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt::ops {

enum class Activation;

namespace cpu {
void token_gather(const at::Tensor& inputs, const at::Tensor& targets, const at::Tensor& tokens,
                  const at::Tensor& starts);

struct AttentionShape;
void attention(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& output, const at::Tensor& log_sum);
void attention_backward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& output,
                        const at::Tensor& log_sum, const at::Tensor& output_gradient, const at::Tensor& gradient);

// `in` and its gradient are undefined without a gate.
struct DropoutMask;
void activation(Activation activation, const DropoutMask& dropout, const at::Tensor& x, const at::Tensor& in,
                const at::Tensor& y);
void activation_backward(Activation activation, const DropoutMask& dropout, const at::Tensor& x, const at::Tensor& in,
                         const at::Tensor& y_gradient, const at::Tensor& x_gradient, const at::Tensor& in_gradient);
}  // namespace cpu

#ifdef GPT_CUDA
namespace cuda {
void token_gather(const at::Tensor& inputs, const at::Tensor& targets, const at::Tensor& tokens,
                  const at::Tensor& starts);
}  // namespace cuda
#endif

}  // namespace gpt::ops
