// Arrays of numbers with a header that says what they are.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>

#include "gpt/core/error.h"
#include "stored_ids.h"

namespace gpt::data {
namespace {

using namespace std::string_view_literals;

std::string_view text_of(const File& file, size_t offset, size_t size) {
  const std::span<const std::byte> bytes = file->bytes();
  const std::span<const std::byte> part = bytes.subspan(std::min(offset, bytes.size()));
  return {reinterpret_cast<const char*>(part.data()), std::min(size, part.size())};
}

template <class Number>
Number number_at(const File& file, size_t offset) {
  Number value{};
  const std::string_view bytes = text_of(file, offset, sizeof value);
  std::memcpy(&value, bytes.data(), bytes.size());
  return value;
}

// A header that announces another size than follows it is of a file that was cut off, or is not finished.
Tokens ids_after(const std::string& path, const File& file, uint64_t offset, uint64_t count, int width) {
  const uint64_t bytes = file->bytes().size() - offset;
  if (bytes / width == count && bytes % width == 0) return stored_ids(path, file, offset, width);
  fail(path,
       fmt::format("the header announces {} ids of {} bytes, but {} bytes follow it; the file is truncated or not "
                   "finished",
                   count, width, bytes));
}

// ---- NumPy: a magic number, two bytes of version, the header's length, and the header, a dict in Python's notation ----

constexpr std::string_view kNumpyMagic = "\x93NUMPY";

// What follows KEY: in the header.
std::string_view value_of(const std::string& path, std::string_view header, std::string_view key) {
  const size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) fail(path, fmt::format("NumPy's header has no '{}'", key));
  const std::string_view value = header.substr(at + key.size() + 3);
  return value.substr(std::min(value.find_first_not_of(' '), value.size()));
}

// Bytes of each id. `type`: '<u2', as NumPy writes it.
int numpy_width(const std::string& path, std::string_view type) {
  const std::string name(type.substr(0, type.find(',')));
  const bool is_quoted = type.size() >= 5 && type[0] == '\'' && type[4] == '\'';
  const bool is_whole =
      is_quoted && (type[2] == 'u' || type[2] == 'i') && "1248"sv.find(type[3]) != std::string_view::npos;
  if (!is_whole)
    fail(path, fmt::format("its numbers are {}; token ids are whole numbers, such as '<u2' (np.uint16)", name));
  if (type[1] == '>' && type[3] != '1')
    fail(path, fmt::format("its numbers are {}, with the highest byte first; write it with .astype('<u4')", name));
  return type[3] - '0';
}

// The product of the sizes in "(3, 4)", and how many there are.
uint64_t numpy_count(const std::string& path, std::string_view shape, int& dimensions) {
  uint64_t count = 1;
  dimensions = 0;
  const size_t end = shape.find(')');
  if (!shape.starts_with('(') || end == std::string_view::npos) fail(path, "NumPy's header has no 'shape'");
  for (size_t at = 1; at < end;) {
    uint64_t size = 0;
    const auto [rest, error] = std::from_chars(shape.data() + at, shape.data() + end, size);
    if (error != std::errc() || __builtin_mul_overflow(count, size, &count))
      fail(path, "the 'shape' in NumPy's header is damaged");
    ++dimensions;
    at = std::min(end, shape.find_first_not_of(", ", rest - shape.data()));
  }
  return count;
}

Tokens open_numpy(const std::string& path, const File& file) {
  const bool is_first_version = number_at<uint8_t>(file, 6) == 1;
  const size_t begin = is_first_version ? 10 : 12;
  const size_t length = is_first_version ? number_at<uint16_t>(file, 8) : number_at<uint32_t>(file, 8);
  const std::string_view header = text_of(file, begin, length);
  if (header.size() < length) fail(path, "the file ends within NumPy's header");
  int dimensions = 0;
  const uint64_t count = numpy_count(path, value_of(path, header, "shape"), dimensions);
  if (dimensions > 1 && value_of(path, header, "fortran_order").starts_with("True"))
    fail(path, "its columns lie one after the other (fortran_order); write it with np.ascontiguousarray()");
  return ids_after(path, file, begin + length, count, numpy_width(path, value_of(path, header, "descr")));
}

// ---- lit-llama, lit-gpt, TinyLlama: PackedDatasetBuilder's chunks ----

constexpr std::string_view kPackedMagic = "LITPKDS";
constexpr size_t kPackedHeaderBytes = 24;  // magic, uint64 version, uint8 dtype, uint64 number of ids

int packed_width(const std::string& path, uint8_t code) {
  constexpr int kWidths[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};  // uint8, int8, int16, int32, int64, float32, float64, uint16
  const int width = code < std::size(kWidths) ? kWidths[code] : 0;
  if (width > 0) return width;
  fail(path, fmt::format("byte 15: dtype code {}, which stands for no whole numbers", code));
}

Tokens open_packed(const std::string& path, const File& file) {
  if (file->bytes().size() < kPackedHeaderBytes) fail(path, "the file ends within the header of a packed dataset");
  if (const auto version = number_at<uint64_t>(file, 7); version != 1)
    fail(path, fmt::format("byte 7: version {} of a packed dataset; only 1 is known", version));
  return ids_after(path, file, kPackedHeaderBytes, number_at<uint64_t>(file, 16),
                   packed_width(path, number_at<uint8_t>(file, 15)));
}

// litdata's chunks (litgpt's prepared data): uint32 number of items and where each begins, then the items.
bool is_litdata(const File& file) {
  const uint64_t size = file->bytes().size(), items = number_at<uint32_t>(file, 0);
  const uint64_t header = 4 * (items + 2);
  return items > 0 && header < size && number_at<uint32_t>(file, 4) == header &&
         number_at<uint32_t>(file, 4 * (items + 1)) == size;
}

}  // namespace

std::unique_ptr<Tokens> open_array(const std::string& path, const File& file) {
  if (text_of(file, 0, kNumpyMagic.size()) == kNumpyMagic) return std::make_unique<Tokens>(open_numpy(path, file));
  if (text_of(file, 0, kPackedMagic.size()) == kPackedMagic) return std::make_unique<Tokens>(open_packed(path, file));
  if (!is_litdata(file)) return nullptr;
  fail(path,
       "it is a chunk of litdata, whose index.json says how to read it; write all ids into one file "
       "(np.concatenate([...]).astype('<u2').tofile('train.bin')), or prepare the text with gpt-prepare");
}

}  // namespace gpt::data
