// Tensors that have a size and a type but no memory, whose address LibTorch refuses to give.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>

#include <cstdint>

namespace gpt::parameters {

inline at::Tensor without_data(int64_t count, const at::TensorOptions& options) {
  const auto bytes = static_cast<size_t>(count) * options.dtype().itemsize();
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(nullptr, options.device()),
                             /*allocator=*/nullptr, /*resizable=*/false);
  return at::empty({0}, options).set_(storage, 0, {count}, {1});
}

}  // namespace gpt::parameters
