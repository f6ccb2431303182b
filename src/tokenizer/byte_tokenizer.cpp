#include "byte_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "gpt/core/error.h"

namespace gpt::tokenizer {

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  ids.reserve(ids.size() + text.size());
  std::transform(text.begin(), text.end(), std::back_inserter(ids),
                 [](char c) { return static_cast<unsigned char>(c); });
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text(ids.size(), '\0');
  std::transform(ids.begin(), ids.end(), text.begin(), [](int32_t id) {
    if (id < 0 || id > 255) throw Error(ExitCode::data, fmt::format("token id {} is outside the 256 byte values", id));
    return static_cast<char>(id);
  });
  return text;
}

}  // namespace gpt::tokenizer
