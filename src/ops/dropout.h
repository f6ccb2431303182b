// What both passes of an operator draw their dropout mask from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gpt/ops/dropout_spec.h"
#include "gpt/simd/dropout_mask.h"

namespace gpt::ops {

struct Dropout {
  uint32_t kept_of_65536 = 65536, site = 0;
  int64_t of_sample = 1;  // how many rows, or matrices, each sample has
  int64_t first = 0;      // column or head, as DropoutSpec has it
  at::Tensor place;       // as DropoutSpec has it; undefined only without dropout

  explicit operator bool() const { return place.defined(); }
};

// For an operator on the device of x. Throws c10::Error for a probability that is not in [0, 1), and for a place that does not fit.
Dropout dropout_of(const DropoutSpec& spec, const at::Tensor& x, int64_t of_sample);

// The rows of a sample of x (..., rows, columns), and its columns.
int64_t rows_of_sample(const at::Tensor& x);
int64_t columns_of(const at::Tensor& x);

// Reads the place, which must be on the CPU.
cpu::DropoutMask mask_on_cpu(const Dropout& dropout);

}  // namespace gpt::ops
