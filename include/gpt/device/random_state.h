// The state of a device's default generator, from which dropout draws: a tensor of bytes, as checkpoints keep it.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt::device {

at::Tensor random_state(at::Device device);
void set_random_state(at::Device device, const at::Tensor& state);
void seed_random_state(at::Device device, uint64_t seed);

}  // namespace gpt::device
