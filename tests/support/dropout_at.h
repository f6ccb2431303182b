// A dropout with its place, as a training step gives it to operators.
#pragma once

#include <ATen/ops/tensor.h>

#include <cstdint>

#include "gpt/ops/dropout_spec.h"

namespace gpt::test {

inline ops::DropoutSpec dropout_at(at::Device device, double probability, int64_t key, int64_t first_sample = 0,
                                   uint32_t site = 0) {
  return {probability, site, at::tensor({key, first_sample}, at::dtype(at::kLong)).to(device)};
}

}  // namespace gpt::test
