#include "gpt/container/zip.h"

#include <bit>
#include <cstring>

namespace gpt::zip {
namespace {

static_assert(std::endian::native == std::endian::little, "integers are written as they lie in memory");

constexpr uint32_t kLocalSignature = 0x04034b50, kCentralSignature = 0x02014b50;
constexpr uint32_t kZip64EndSignature = 0x06064b50, kZip64LocatorSignature = 0x07064b50, kEndSignature = 0x06054b50;
constexpr uint16_t kZipVersion = 45;  // the first with ZIP64
constexpr uint16_t kFlags = 0, kStored = 0;
constexpr uint16_t kTime = 0, kDate = (1 << 5) | 1;  // 1980-01-01: the same content gives the same file
constexpr uint16_t kIn64 = 0xffff;                   // "see the ZIP64 field"
constexpr uint32_t kIn64Bits = 0xffffffff;
constexpr uint16_t kZip64Id = 1, kPaddingId = 0x5447;
constexpr size_t kLocalFixedSize = 30, kFieldHeaderSize = 4, kLocalZip64Size = 16, kCentralZip64Size = 24;
constexpr size_t kCrcPosition = 14, kNameSizePosition = 26;
constexpr uint64_t kZip64EndRest = 44;  // size of the ZIP64 end record after its own size field

template <class... Integers>
void append(std::string& out, Integers... values) {
  (out.append(reinterpret_cast<const char*>(&values), sizeof(values)), ...);
}

template <class Integer>
Integer load(std::span<const std::byte> bytes, uint64_t offset) {
  Integer value;
  std::memcpy(&value, bytes.subspan(offset, sizeof(value)).data(), sizeof(value));
  return value;
}

}  // namespace

std::string local_header(const Entry& entry) {
  const uint64_t unpadded =
      entry.offset + kLocalFixedSize + entry.name.size() + kFieldHeaderSize + kLocalZip64Size + kFieldHeaderSize;
  const auto padding = static_cast<uint16_t>((kAlignment - unpadded % kAlignment) % kAlignment);
  const auto extra_size = static_cast<uint16_t>(kFieldHeaderSize + kLocalZip64Size + kFieldHeaderSize + padding);
  std::string out;
  append(out, kLocalSignature, kZipVersion, kFlags, kStored, kTime, kDate, entry.crc, kIn64Bits, kIn64Bits,
         static_cast<uint16_t>(entry.name.size()), extra_size);
  out += entry.name;
  append(out, kZip64Id, static_cast<uint16_t>(kLocalZip64Size), entry.size, entry.size);
  append(out, kPaddingId, padding);
  out.append(padding, '\0');
  return out;
}

std::optional<Entry> read_local_header(std::span<const std::byte> file, uint64_t offset) {
  if (offset > file.size()) return std::nullopt;
  const auto bytes = file.subspan(offset);
  if (bytes.size() < kLocalFixedSize) return std::nullopt;
  const size_t name_size = load<uint16_t>(bytes, kNameSizePosition);
  const size_t size_position = kLocalFixedSize + name_size + kFieldHeaderSize;
  if (bytes.size() < size_position + sizeof(uint64_t)) return std::nullopt;

  Entry entry;
  entry.name.assign(reinterpret_cast<const char*>(bytes.data()) + kLocalFixedSize, name_size);
  entry.offset = offset;
  entry.size = load<uint64_t>(bytes, size_position);
  entry.crc = load<uint32_t>(bytes, kCrcPosition);
  const std::string expected = local_header(entry);
  const bool same = bytes.size() >= expected.size() && std::memcmp(bytes.data(), expected.data(), expected.size()) == 0;
  if (!same) return std::nullopt;
  return entry;
}

std::string directory(const std::vector<Entry>& entries, uint64_t offset, size_t comment_size) {
  std::string out;
  for (const Entry& entry : entries) {
    append(out, kCentralSignature, kZipVersion, kZipVersion, kFlags, kStored, kTime, kDate, entry.crc, kIn64Bits,
           kIn64Bits, static_cast<uint16_t>(entry.name.size()),
           static_cast<uint16_t>(kFieldHeaderSize + kCentralZip64Size));
    append(out, uint16_t{0}, uint16_t{0}, uint16_t{0}, uint32_t{0}, kIn64Bits);  // comment, disk, attributes, offset
    out += entry.name;
    append(out, kZip64Id, static_cast<uint16_t>(kCentralZip64Size), entry.size, entry.size, entry.offset);
  }
  const uint64_t size = out.size(), count = entries.size();
  append(out, kZip64EndSignature, kZip64EndRest, kZipVersion, kZipVersion, uint32_t{0}, uint32_t{0}, count, count, size,
         offset);
  append(out, kZip64LocatorSignature, uint32_t{0}, offset + size, uint32_t{1});
  append(out, kEndSignature, uint16_t{0}, uint16_t{0}, kIn64, kIn64, kIn64Bits, kIn64Bits,
         static_cast<uint16_t>(comment_size));
  return out;
}

}  // namespace gpt::zip
