// The ZIP structures against values worked out by hand from APPNOTE, and with offsets beyond 4 GB.
#include "gpt/container/zip.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::zip {
namespace {

std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

template <class Integer>
Integer at(const std::string& bytes, size_t offset) {
  Integer value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

TEST(Zip, DataIsAlignedAtAnyOffsetAndNameLength) {
  for (const uint64_t offset : {0ull, 1ull, 63ull, 64ull, 4096ull, (1ull << 32) - 1, (1ull << 32) + 5, 1ull << 45}) {
    for (size_t length = 1; length < 130; ++length) {
      EXPECT_EQ((offset + local_header({std::string(length, 'n'), offset, 1, 2}).size()) % kAlignment, 0u);
    }
  }
}

TEST(Zip, LocalHeaderIsReadBackAndOnlyItself) {
  const Entry entry{"archive/data/weight", 0, (1ull << 40) + 3, 0x12345678};
  const std::string header = local_header(entry);
  const auto read = read_local_header(as_bytes(header), 0);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->name, entry.name);
  EXPECT_EQ(read->size, entry.size);
  EXPECT_EQ(read->crc, entry.crc);
  for (size_t length = 0; length < header.size(); ++length) {
    EXPECT_FALSE(read_local_header(as_bytes(header).first(length), 0)) << length;
  }
  EXPECT_FALSE(read_local_header(as_bytes(header), 1));
  EXPECT_FALSE(read_local_header(as_bytes(header), header.size() + 1));
  // What other writers do: compression, encryption, a data descriptor, 32-bit sizes, an own order of the extra fields.
  for (const size_t position : {4, 6, 8, 10, 12, 18, 22, 28, 49, 51}) {
    std::string changed = header;
    changed[position] ^= 8;
    EXPECT_FALSE(read_local_header(as_bytes(changed), 0)) << position;
  }
}

TEST(Zip, DirectoryHolds64BitSizesAndOffsets) {
  const uint64_t offset = (1ull << 32) + 64, size = (1ull << 33) + 1, end = (1ull << 34) + 128;
  const std::string bytes = directory({{"name", offset, size, 0xabcdef01}}, end, 57);
  const size_t entry_size = 46 + 4 + 28, locator = entry_size + 56, last = locator + 20;
  ASSERT_EQ(bytes.size(), last + 22);
  EXPECT_EQ(bytes.substr(0, 4), "PK\x01\x02");
  EXPECT_EQ(at<uint32_t>(bytes, 16), 0xabcdef01u);
  EXPECT_EQ(bytes.substr(46, 4), "name");
  EXPECT_EQ(at<uint64_t>(bytes, 54), size);
  EXPECT_EQ(at<uint64_t>(bytes, 62), size);
  EXPECT_EQ(at<uint64_t>(bytes, 70), offset);
  EXPECT_EQ(bytes.substr(entry_size, 4), "PK\x06\x06");
  EXPECT_EQ(at<uint64_t>(bytes, entry_size + 32), 1u);          // entries
  EXPECT_EQ(at<uint64_t>(bytes, entry_size + 40), entry_size);  // size of the directory
  EXPECT_EQ(at<uint64_t>(bytes, entry_size + 48), end);
  EXPECT_EQ(bytes.substr(locator, 4), "PK\x06\x07");
  EXPECT_EQ(at<uint64_t>(bytes, locator + 8), end + entry_size);
  EXPECT_EQ(bytes.substr(last, 4), "PK\x05\x06");
  EXPECT_EQ(at<uint16_t>(bytes, last + 20), 57u);
}

}  // namespace
}  // namespace gpt::zip
