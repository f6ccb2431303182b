// Where parameters lie in flat buffers.
#pragma once

#include <cstdint>

namespace gpt::layout {

// Each parameter begins at a multiple of this, so that no block or shard of that size holds values of two parameters.
constexpr int64_t kParameterAlignment = 256;
constexpr int64_t aligned_end(int64_t end) {
  return (end + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
}

}  // namespace gpt::layout
