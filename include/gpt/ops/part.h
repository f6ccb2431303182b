// The parts of a training step, by name, for whoever listens: gpt-bench profile, LibTorch's profiler, NVTX. Where nobody does, a
// name costs a few nanoseconds. Autograd computes the gradients of what a part did under no name; a listener recognizes its nodes
// by their sequence numbers, which are handed out in the order of the forward pass.
#pragma once

#include <ATen/record_function.h>

#include <array>

namespace gpt::ops {

namespace part {
inline constexpr const char *kData = "data", *kEmbedding = "embedding", *kNorm = "residual sum and norm",
                            *kProducts = "products", *kAttention = "attention", *kActivation = "activation",
                            *kHead = "head and loss", *kOptimizer = "optimizer";
// In the order of a step.
inline constexpr std::array kAll{kData, kEmbedding, kNorm, kProducts, kAttention, kActivation, kHead, kOptimizer};
}  // namespace part

// What is done in its lifetime belongs to the part.
class InPart {
 public:
  explicit InPart(const char* name) : record_(at::RecordScope::USER_SCOPE) {
    if (record_.isActive()) record_.before(name);
  }

 private:
  at::RecordFunction record_;
};

}  // namespace gpt::ops
