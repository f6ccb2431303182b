// Rotary position embedding (Su et al., 2021) in Llama's convention: channel i of a head's first half is rotated with
// channel i of its second half by the angle position * theta^(-2i/D), or a lower one where frequencies are scaled.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gpt/config/model_config.h"

namespace gpt::ops {

struct RotaryTables {
  // (positions, 1, D/2) float32: they broadcast over the heads of (B, T, heads, D). Their squares add up to one, or to that of
  // RopeScaling::magnitude().
  at::Tensor cos, sin;
};

RotaryTables rotary_tables(int64_t positions, int64_t head_dim, double theta, at::Device device,
                           const RopeScaling& scaling = {});

// (D/2) float64 on the CPU: what scaling divides each frequency by.
at::Tensor frequency_divisors(int64_t head_dim, double theta, const RopeScaling& scaling);

// Throws c10::Error unless the tables fit x (B, T, ...) with heads of width D: (T, 1, D/2) float32 on its device.
void check_rotary(const RotaryTables& tables, const at::Tensor& x, int64_t D);

// x (B, T, heads, D), tables (T, 1, D/2) -> the same shape and dtype, contiguous. Differentiable in x.
at::Tensor rotary(const at::Tensor& x, const RotaryTables& tables);

}  // namespace gpt::ops
