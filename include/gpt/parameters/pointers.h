// From tensors and parameters to the pointers that kernels take.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/parameters/parameters.h"

namespace gpt::ops {

// Null for an undefined tensor.
template <class T>
const T* read(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<T>() : nullptr;
}

template <class T>
T* write(const at::Tensor& x) {
  return x.defined() ? x.mutable_data_ptr<T>() : nullptr;
}

inline const float* read(const parameters::Parameter& parameter) {
  return parameter.defined() ? read<float>(parameter.value()) : nullptr;
}

}  // namespace gpt::ops
