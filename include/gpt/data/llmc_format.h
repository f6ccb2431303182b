// The header of llm.c's bins: int32 magic, version and number of tokens, zeros up to 256 int32; then come the ids.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpt::llmc {

constexpr size_t kHeaderBytes = 256 * sizeof(int32_t);

struct Version {
  int32_t magic, number;
  int width;  // bytes per id
};
inline constexpr Version kGpt2{20240520, 1, 2};
inline constexpr Version kLlama3{20240801, 7, 4};

}  // namespace gpt::llmc
