// AdamW's moments in 8 bits: the "dynamic quantization" of Dettmers et al. (2022), "8-bit Optimizers via Block-wise Quantization".
// The largest magnitude of each block of kParameterAlignment values is kept in float32, and for each value a code: the index of one of
// 256 fractions of that magnitude, in ascending order. The fractions are denser towards 0: there are seven decades of them down to
// 1e-7, each with half as many as the one above it. The update of ops/adamw.h converts moments in its kernel; the functions here
// convert whole tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gpt::ops {

enum class MomentKind { first, second };  // the first has both signs; the second is never negative

uint8_t code_of_zero(MomentKind kind);

struct QuantizedMoments {
  at::Tensor codes;   // uint8, of the shape of the values
  at::Tensor maxima;  // float32, one for each block of the values in their order, of which the last may be shorter
};

// Every value becomes the nearest of its block's 256, and a second moment above 0 never 0: as a divisor that would make the update
// of its parameter many times too large. Values whose block stays below the smallest normal number become 0. On the CPU.
QuantizedMoments quantized(const at::Tensor& values, MomentKind kind);
at::Tensor dequantized(const QuantizedMoments& moments, MomentKind kind);  // float32, on the CPU

}  // namespace gpt::ops
