// How many rows of a matrix a thread has at least, on a CPU.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpt::ops::cpu {

inline constexpr int64_t kLeastValues = 16384;  // below, waking a thread costs more than it saves

inline int64_t row_grain(int64_t columns) { return std::max<int64_t>(1, kLeastValues / std::max<int64_t>(1, columns)); }

}  // namespace gpt::ops::cpu
