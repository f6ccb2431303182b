// Token ids as files hold them, in 1, 2, 4 or 8 bytes each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "gpt/core/file.h"
#include "gpt/data/token_file.h"

namespace gpt::data {

using File = std::shared_ptr<const MappedFile>;

// All that follows the `offset` bytes of a header. Ids of 16 and 32 bits stay in the file; those of 8 and 64 bits are copied to
// 16 and 32, where what is negative or does not fit becomes the largest id, which no vocabulary has.
// Throws gpt::Error(data) where it is no whole number of ids.
Tokens stored_ids(const std::string& path, const File& file, uint64_t offset, int width_bytes);

// The bytes of each id where zeros show them: every second 16-bit number is 0 in ids of 32 bits below 65,536, and the upper half
// of each in ids of 64 bits, while most others are not. 0 = they show nothing. Looks at the first megabyte.
int evident_width(std::span<const std::byte> bytes);

// The ids of NumPy's .npy, and of the files that lit-llama and TinyLlama pack. Null where it is neither. Throws gpt::Error(data) for
// a header that contradicts the file, and for other things than ids.
std::unique_ptr<Tokens> open_array(const std::string& path, const File& file);

}  // namespace gpt::data
