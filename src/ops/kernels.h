// What operators call: a function for each device, all with the same signature. The arguments have already been checked.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

namespace gpt::parameters {
class Parameter;
}

namespace gpt::ops {

enum class Activation;
struct AdamWBuffers;
struct AdamWRates;
struct AdamWScalars;
struct ClassifierOptions;
struct Dropout;
struct Evidence;
struct HeadPass;
struct HeadSums;
struct MuonBuffers;
struct MuonRates;
struct MuonScalars;
struct MuonWeights;
struct Normalization;
struct SpikeWatch;
struct UpdateCounts;
struct Verdict;

// All that have one on every device. The tables of functions are made of this list: one that a device lacks is an error of the compiler, or
// of the linker. The CPU's are declared below and defined in cpu/*.cpp. CUDA's are templates of cuda/*.cuh with the same name, and the same
// arguments behind a `launch` (cuda/launch.cuh).
#define GPT_KERNELS(KERNEL)   \
  KERNEL(token_gather)        \
  KERNEL(join_heads)          \
  KERNEL(embedding)           \
  KERNEL(embedding_backward)  \
  KERNEL(activation)          \
  KERNEL(activation_backward) \
  KERNEL(cross_entropy)       \
  KERNEL(distillation)        \
  KERNEL(add_norm)            \
  KERNEL(add_norm_backward)   \
  KERNEL(sum_rows)            \
  KERNEL(add_row_sums)        \
  KERNEL(flat_norm)           \
  KERNEL(judge)               \
  KERNEL(adamw)               \
  KERNEL(muon_direction)      \
  KERNEL(muon_update)

// A backward pass returns the sums of a gradient over its rows in parts: float32, whose sum over the first dimension is those sums.
// Undefined: it was not asked for them, or cannot sum rows of this shape.
namespace cpu {
void token_gather(const at::Tensor& inputs, const at::Tensor& targets, const at::Tensor& tokens,
                  const at::Tensor& starts);

struct AttentionShape;
void attention(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& output, const at::Tensor& log_sum);
void attention_backward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& output,
                        const at::Tensor& log_sum, const at::Tensor& output_gradient, const at::Tensor& gradient);

// The heads of q, k and v (B, T, heads, D), each with values side by side, next to each other in `packed` (B, T, heads of all, D),
// those of q and k normalized and rotated as `pass` (head_pass.h) says. v may be undefined, and all may lie where they are written.
HeadSums join_heads(const HeadPass& pass, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const at::Tensor& packed);

// ids (B, T), positions (T, C) or undefined, y (B, T, C). The backward pass adds to both gradients, of which one may be undefined.
void embedding(const Dropout& dropout, const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions,
               const at::Tensor& y);
void embedding_backward(const Dropout& dropout, const at::Tensor& ids, const at::Tensor& gradient,
                        const at::Tensor& of_table, const at::Tensor& of_positions);

// `in` and its gradient are undefined without a gate. The sums are those of the gradients of x and of `in` (..., C), in parts
// (n, 2, C); without a gate the second ones are not set.
void activation(Activation activation, const Dropout& dropout, const at::Tensor& x, const at::Tensor& in,
                const at::Tensor& y);
at::Tensor activation_backward(Activation activation, const Dropout& dropout, const at::Tensor& x, const at::Tensor& in,
                               const at::Tensor& y_gradient, const at::Tensor& x_gradient,
                               const at::Tensor& in_gradient, bool sums_rows);

// The cross entropy of each row of `logits` (rows, Vp) against `targets` (rows) into `losses` (rows) float32. With `scale`, a
// float32 scalar, the logits become their gradients times it, and 0 in the padding; without, their content is of no more use. Of a
// row whose target is kMaskedTarget all of that is 0.
void cross_entropy(const ClassifierOptions& options, const at::Tensor& logits, const at::Tensor& targets,
                   const at::Tensor& losses, const at::Tensor& scale);
// The same with a part of the loss and of the gradients that is the divergence from what the logits `teacher` (rows, the vocabulary or
// more) say, as options.teacher has it.
void distillation(const ClassifierOptions& options, const at::Tensor& logits, const at::Tensor& teacher,
                  const at::Tensor& targets, const at::Tensor& losses, const at::Tensor& scale);
// The branch and its gradient may be undefined, `statistics` (rows, 2) where they are not kept, and one gradient of a result.
// The backward pass returns (n, 2 or 3, C): partial sums of the weight's gradient, of the bias's gradient and, if requested and
// supported, of the branch's gradient. The first two are not set where `normed_gradient` is undefined.
void add_norm(const Normalization& norm, const Dropout& dropout, const at::Tensor& x, const at::Tensor& branch,
              const at::Tensor& sum, const at::Tensor& normed, const at::Tensor& statistics);
at::Tensor add_norm_backward(const Normalization& norm, const Dropout& dropout, const at::Tensor& sum,
                             const at::Tensor& statistics, const at::Tensor& sum_gradient,
                             const at::Tensor& normed_gradient, const at::Tensor& x_gradient,
                             const at::Tensor& branch_gradient, bool sums_branch);

// The sums of the columns of x (rows, C), in parts (n, C). On a CPU always undefined: LibTorch's are as good.
at::Tensor sum_rows(const at::Tensor& x);

// Adds to the gradients of one or two parameters (C), both of one type that kernels take, the sums over n of the parts (n, C) or
// (n, parameters or more, C), each row of which is contiguous.
void add_row_sums(c10::ArrayRef<parameters::Parameter> parameters, const at::Tensor& parts);

// As ops::flat_norm() and ops::block_norms().
at::Tensor flat_norm(const at::Tensor& values);
at::Tensor block_norms(const at::Tensor& values);

// As ops::judge().
void judge(const Evidence& evidence, double max_norm, const Verdict& verdict, const UpdateCounts& counts,
           const SpikeWatch& watch);

void adamw(const AdamWBuffers& buffers, const AdamWRates& rates, const AdamWScalars& scalars);

// As ops::muon_direction() and ops::muon_update().
void muon_direction(const MuonBuffers& buffers, double momentum, const MuonScalars& scalars);
void muon_update(const MuonWeights& weights, const MuonRates& rates, const MuonScalars& scalars);
}  // namespace cpu

// The functions of one device.
struct Kernels {
#define GPT_MEMBER(name) decltype(&cpu::name) name;  // NOLINT(bugprone-macro-parentheses): it is a name
  GPT_KERNELS(GPT_MEMBER)
#undef GPT_MEMBER
  bool take_float16;
};

// Tests put others in their place.
Kernels& cpu_kernels();
Kernels& cuda_kernels();  // only in a build with CUDA

// The kernels of a tensor's device, which is the current one as long as this lives.
class DeviceKernels {
 public:
  // Throws c10::Error for a device that this build has no kernels for.
  explicit DeviceKernels(const at::Tensor& x);
  const Kernels* operator->() const { return &kernels_; }

 private:
  const Kernels& kernels_;
  const c10::OptionalDeviceGuard guard_;
};
inline DeviceKernels kernels_of(const at::Tensor& x) { return DeviceKernels(x); }

inline constexpr int64_t kMostNormColumnsOfCuda = 8192;  // a row must fit into the registers of a block

// Throws c10::Error unless the kernels take the type of x.
void check_kernel_type(const char* name, const at::Tensor& x);

}  // namespace gpt::ops
