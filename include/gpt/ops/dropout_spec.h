// What the mask of an operator's dropout follows from. It is a function and not a stream: the same whatever was drawn before, however the
// samples of an update are cut into micro-batches, and wherever these are computed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gpt::ops {

// The dropouts of a model: of the embedding, and in each layer of the attention's weights, of what attention adds to the residual
// stream, and in the MLP.
enum class DropoutKind : uint8_t { embedding, attention, attention_out, mlp };

// A number for each of them; `layer`, in the whole model, is -1 before the first one.
constexpr uint32_t dropout_site(DropoutKind kind, int64_t layer) {
  constexpr int64_t kKinds = 4;
  return static_cast<uint32_t>(kKinds * (layer + 1) + static_cast<int64_t>(kind));
}

// The same of what goes into an adapter (training.lora_dropout), by the number of its weight's role: apart from all of those.
constexpr uint32_t adapter_dropout_site(int64_t role, int64_t layer) {
  constexpr int64_t kRoles = 64;
  return (uint32_t{1} << 31) + static_cast<uint32_t>(kRoles * (layer + 1) + role);
}

// With the probability, in [0, 1), an element is set to zero; the others are scaled up. Our kernels round it to a multiple of 2^-16.
//
// Their mask follows from the two numbers of `place`, the site, and where the element is: its sample in the update, its position and its
// column, or its head, query and key. `place` is an int64 tensor (2) on the device of the operator: a key, which is another one for
// every update of a run, and the number in the update that the micro-batch's first sample has. So it can be set anew between the
// replays of a recorded step. Both passes read it: it must not change in between. Undefined stands for zeros, with which
// every call has the same mask.
//
// The masks of a CPU and of a GPU differ. LibTorch's operators, and its attention on a GPU, take the probability alone, do not round it and
// draw from the device's default generator (Operators::draws).
struct DropoutSpec {
  double probability = 0;
  uint32_t site = 0;
  at::Tensor place = {};
  // Where processes divide the columns or heads of a layer: the number that the first one here has in the whole model, and how many heads
  // that has; 0: those that attention is called with. The masks are then parts of those of one process.
  int64_t first = 0, all_heads = 0;
};

}  // namespace gpt::ops
