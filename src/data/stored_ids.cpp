#include "stored_ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "gpt/core/error.h"

namespace gpt::data {
namespace {

template <class Stored, class Id>
Tokens copied(const std::byte* data, size_t count) {
  const auto copy = std::make_shared<std::vector<Id>>(count);
  for (size_t i = 0; i < count; ++i) {
    Stored id;
    std::memcpy(&id, data + i * sizeof id, sizeof id);
    (*copy)[i] = id > std::numeric_limits<Id>::max() ? std::numeric_limits<Id>::max() : static_cast<Id>(id);
  }
  return {copy, copy->data(), static_cast<int64_t>(count), sizeof(Id)};
}

}  // namespace

Tokens stored_ids(const std::string& path, const File& file, uint64_t offset, int width_bytes) {
  const std::span<const std::byte> bytes = file->bytes().subspan(offset);
  if (bytes.size() % width_bytes != 0) {
    throw Error(ExitCode::data,
                fmt::format("{}: {} bytes are not a whole number of {}-byte token ids; the file is truncated "
                            "or its metadata names the wrong dtype",
                            path, bytes.size(), width_bytes));
  }
  const size_t count = bytes.size() / width_bytes;
  if (width_bytes == 1) return copied<uint8_t, uint16_t>(bytes.data(), count);
  if (width_bytes == 8) return copied<uint64_t, uint32_t>(bytes.data(), count);
  return {file, bytes.data(), static_cast<int64_t>(count), width_bytes};
}

int evident_width(std::span<const std::byte> bytes) {
  constexpr size_t kRead = 1 << 20, kLeast = 128;  // bytes: 32 ids of 32 bits are not alike by chance
  if (bytes.size() < kLeast) return 0;
  size_t set[4] = {};  // how many of the words at 0, 2, 4 and 6 bytes of each 8 are not 0
  const size_t read = std::min(bytes.size(), kRead);
  for (size_t i = 0; i + 2 <= read; i += 2) {
    uint16_t word;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    set[i / 2 % 4] += word != 0;
  }
  // Where most of the lower halves are 0 too, zeros are what the ids are.
  const auto are_most = [read](size_t count, size_t width) { return count > read / width / 2; };
  if (set[2] + set[3] == 0 && are_most(set[0], 8) && bytes.size() % 8 == 0) return 8;
  if (set[1] + set[3] == 0 && are_most(set[0] + set[2], 4) && bytes.size() % 4 == 0) return 4;
  return 0;
}

}  // namespace gpt::data
