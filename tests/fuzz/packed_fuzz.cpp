// Compressed text: 'g' and a gzip file, 'z' and a zstd file; 'G' or 'Z' and a text that is packed in two parts.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "expect.h"
#include "folder.h"
#include "src/prepare/byte_stream.h"
#include "tests/prepare/packed.h"

namespace {

using namespace gpt;

constexpr size_t kEnough = 1 << 17;  // a small file may unpack to any size

// What comes out, asked for in pieces of `asked` bytes; none where it is refused.
std::optional<std::string> unpacked(const prepare::Source& source, size_t asked) {
  std::atomic<uint64_t> consumed = 0;
  std::string text;
  const bool accepted = fuzz::accept_or_refuse([&] {
    const auto stream = unpack(open_file(source, consumed, [] {}), source.packing, source.name);
    std::string buffer(asked, '\0');
    while (const size_t count = text.size() < kEnough ? stream->read(buffer.data(), asked) : 0) {
      fuzz::expect(count <= asked, "no more than was asked for");
      text.append(buffer, 0, count);
    }
  });
  fuzz::expect(consumed <= static_cast<uint64_t>(source.bytes), "no more than the file to be read");
  return accepted ? std::optional(text) : std::nullopt;
}

void expect_text(const fuzz::Folder& folder, std::string_view text, prepare::Packing packing) {
  const auto pack = [packing](std::string_view part) {
    return packing == prepare::Packing::gzip ? prepare::gzip(std::string(part)) : prepare::zstd(std::string(part));
  };
  const size_t half = text.size() / 2;
  const std::string file = pack(text.substr(0, half)) + pack(text.substr(half));
  const prepare::Source source{.path = folder.write("input", file),
                               .name = "input",
                               .packing = packing,
                               .bytes = static_cast<int64_t>(file.size())};
  fuzz::expect(unpacked(source, 1 << 16) == text && unpacked(source, 13) == text, "the text to come back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  if (rest.empty()) return 0;
  const char kind = rest[0];
  rest.remove_prefix(1);
  const prepare::Packing packing = kind == 'g' || kind == 'G' ? prepare::Packing::gzip : prepare::Packing::zstd;
  if (kind == 'G' || kind == 'Z') {
    expect_text(folder, rest, packing);
    return 0;
  }
  const prepare::Source source{.path = folder.write("input", rest),
                               .name = "input",
                               .packing = packing,
                               .bytes = static_cast<int64_t>(rest.size())};
  const auto whole = unpacked(source, 1 << 16), pieces = unpacked(source, 1021);
  const bool is_long = (whole && whole->size() >= kEnough) || (pieces && pieces->size() >= kEnough);
  fuzz::expect(is_long || whole == pieces, "the same in small pieces");
  return 0;
}
