#pragma once

#include <cstdint>

namespace gpt {

// SplitMix64's finalizer, which mixes the bits of a number so that one seed can be derived from another.
constexpr uint64_t mix64(uint64_t value) {
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
  value = (value ^ value >> 27) * 0x94D049BB133111EBu;
  return value ^ value >> 31;
}

}  // namespace gpt
