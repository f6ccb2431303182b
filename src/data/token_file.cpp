#include "gpt/data/token_file.h"

#include <fmt/format.h>

#include <stdexcept>

#include "gpt/core/error.h"
#include "gpt/core/file.h"

namespace gpt {
namespace {

constexpr int64_t kIdsOf16Bits = 65536;

template <class Id>
std::shared_ptr<const void> narrowed(const std::vector<int32_t>& ids, const void*& data) {
  auto copy = std::make_shared<std::vector<Id>>(ids.begin(), ids.end());
  data = copy->data();
  return copy;
}

}  // namespace

Tokens Tokens::from_ids(const std::vector<int32_t>& ids, int64_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      throw Error(ExitCode::data, fmt::format("token {} has id {}, outside the vocabulary of {}", i, ids[i], vocab_size));
    }
  }
  Tokens tokens;
  tokens.width_ = vocab_size <= kIdsOf16Bits ? 2 : 4;
  tokens.size_ = static_cast<int64_t>(ids.size());
  tokens.storage_ = tokens.width_ == 2 ? narrowed<uint16_t>(ids, tokens.data_) : narrowed<uint32_t>(ids, tokens.data_);
  return tokens;
}

Tokens Tokens::map_file(const std::string& path, int width_bytes) {
  auto file = std::make_shared<MappedFile>(path, ExitCode::data);
  const size_t bytes = file->bytes().size();
  if (bytes % width_bytes != 0) {
    throw Error(ExitCode::data, fmt::format("{}: {} bytes are not a whole number of {}-byte token ids; the file is truncated "
                                            "or its metadata names another dtype",
                                            path, bytes, width_bytes));
  }
  Tokens tokens;
  tokens.width_ = width_bytes;
  tokens.size_ = static_cast<int64_t>(bytes / width_bytes);
  tokens.data_ = file->bytes().data();
  tokens.storage_ = std::move(file);
  return tokens;
}

Tokens Tokens::slice(int64_t begin, int64_t end) const {
  if (begin < 0 || begin > end || end > size_) {
    throw std::out_of_range(fmt::format("slice [{}, {}) of {} tokens", begin, end, size_));
  }
  Tokens part = *this;
  part.data_ = static_cast<const std::byte*>(data_) + begin * width_;
  part.size_ = end - begin;
  return part;
}

}  // namespace gpt
