// Bins of tokens: one byte for what is known of the width and for the kind, then a bin; or for Megatron's pair two
// bytes with the size of the index, the index, the bin.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "expect.h"
#include "folder.h"
#include "gpt/data/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpt;
  static const fuzz::Folder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  if (rest.empty()) return 0;
  const int kind = rest[0];
  rest.remove_prefix(1);

  std::string path;
  if (kind & 4) {
    if (rest.size() < 2) return 0;
    const size_t index = static_cast<unsigned char>(rest[0]) | static_cast<unsigned char>(rest[1]) << 8;
    rest.remove_prefix(2);
    folder.write("pair.idx", rest.substr(0, index));
    path = folder.write("pair.bin", index < rest.size() ? rest.substr(index) : "");
  } else {
    path = folder.write("single.bin", rest);
  }
  fuzz::accept_or_refuse([&] {
    const std::optional<int> widths[] = {std::nullopt, 2, 4, std::nullopt};
    const data::Tokens tokens = data::open_token_file(path, widths[kind & 3]).tokens;
    const int64_t outside = data::first_id_outside(tokens, 1000);
    for (int64_t i = 0; i < tokens.size(); ++i) {  // every id can be read
      const bool inside = tokens[i] >= 0 && tokens[i] < 1000;
      fuzz::expect(inside || outside >= 0, "an id outside the vocabulary to be found");
      fuzz::expect(inside || outside <= i, "the first such id to be found");
    }
  });
  return 0;
}
