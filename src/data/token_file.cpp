#include "gpt/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "gpt/core/error.h"

namespace gpt::data {
namespace {

template <class Id>
Tokens narrowed(const std::vector<int32_t>& ids) {
  const auto copy = std::make_shared<const std::vector<Id>>(ids.begin(), ids.end());
  return {copy, copy->data(), static_cast<int64_t>(ids.size()), sizeof(Id)};
}

// Goes by blocks, so that the common pass is a vectorised maximum.
template <class Id>
int64_t first_outside(const Id* ids, int64_t size, int64_t vocab_size) {
  constexpr int64_t kBlock = 4096;
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, size);
    Id largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, ids[i]);
    if (largest < vocab_size) continue;
    return std::find_if(ids + begin, ids + end, [&](Id id) { return id >= vocab_size; }) - ids;
  }
  return -1;
}

}  // namespace

int width_for(int64_t vocab_size) {
  constexpr int64_t kIdsOf16Bits = 65536;
  return vocab_size <= kIdsOf16Bits ? 2 : 4;
}

Tokens Tokens::from_ids(const std::vector<int32_t>& ids, int64_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      throw Error(ExitCode::data,
                  fmt::format("token {} has id {}, outside the vocabulary of {}", i, ids[i], vocab_size));
    }
  }
  return width_for(vocab_size) == 2 ? narrowed<uint16_t>(ids) : narrowed<uint32_t>(ids);
}

bool has_name_of_bin(const std::string& path) { return path.ends_with(".bin") || path.ends_with(".npy"); }

Tokens Tokens::slice(int64_t begin, int64_t end) const {
  if (begin < 0 || begin > end || end > size_) {
    throw std::out_of_range(fmt::format("slice [{}, {}) of {} tokens", begin, end, size_));
  }
  const Tokens slice(storage_, static_cast<const std::byte*>(data_) + begin * width_, end - begin, width_);
  return has_marks() ? slice.with_marks(marks_storage_, marks_ + begin) : slice;
}

Tokens Tokens::with_marks(std::shared_ptr<const void> storage, const uint8_t* marks) const {
  Tokens marked = *this;
  marked.marks_storage_ = std::move(storage);
  marked.marks_ = marks;
  return marked;
}

int64_t first_id_outside(const Tokens& tokens, int64_t vocab_size) {
  return tokens.width() == 2 ? first_outside(static_cast<const uint16_t*>(tokens.data()), tokens.size(), vocab_size)
                             : first_outside(static_cast<const uint32_t*>(tokens.data()), tokens.size(), vocab_size);
}

}  // namespace gpt::data
