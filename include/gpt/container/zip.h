// The ZIP structures of a container, as bytes. There is only one form: stored, always ZIP64, data aligned, no time
// stamps. A reader therefore parses almost nothing: it re-encodes what the writer must have written, and compares.
// Source: PKWARE APPNOTE 6.3.10, sections 4.3 and 4.5.3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpt::zip {

// Every record's data in the file begin at a multiple of this, as PyTorch's own writer does it.
inline constexpr uint64_t kAlignment = 64;

struct Entry {
  std::string name;
  uint64_t offset = 0;  // where its local header begins
  uint64_t size = 0;    // bytes of its data
  uint32_t crc = 0;     // CRC-32 of its data
};

// Everything before the entry's data.
std::string local_header(const Entry& entry);

// The entry whose local header starts at `offset`; none unless its bytes are exactly those of local_header().
std::optional<Entry> read_local_header(std::span<const std::byte> file, uint64_t offset);

// Everything after the last record's data, which ends at `offset`, up to the comment's text.
std::string directory(const std::vector<Entry>& entries, uint64_t offset, size_t comment_size);

}  // namespace gpt::zip
