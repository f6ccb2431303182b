// Token ids in memory or mapped from a file, 16 or 32 bits wide: what a split is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpt {

// A view of token ids; copies share the storage. Ids are unsigned, 2 bytes wide where the vocabulary fits, else 4.
class Tokens {
 public:
  Tokens() = default;
  // Narrowest width that holds vocab_size - 1.
  static Tokens from_ids(const std::vector<int32_t>& ids, int64_t vocab_size);
  // Maps raw little-endian ids. Throws gpt::Error(data) when the file is missing, or not a whole number of ids.
  static Tokens map_file(const std::string& path, int width_bytes);

  int64_t size() const { return size_; }
  int width() const { return width_; }  // bytes per id: 2 or 4
  const void* data() const { return data_; }
  int32_t operator[](int64_t i) const {
    return width_ == 2 ? static_cast<const uint16_t*>(data_)[i] : static_cast<int32_t>(static_cast<const uint32_t*>(data_)[i]);
  }
  Tokens slice(int64_t begin, int64_t end) const;

 private:
  std::shared_ptr<const void> storage_;
  const void* data_ = nullptr;
  int64_t size_ = 0;
  int width_ = 2;
};

}  // namespace gpt
