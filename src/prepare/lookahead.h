// A stream of which the next bytes can be looked at.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "byte_stream.h"

namespace gpt::prepare {

class Lookahead final : public ByteStream {
 public:
  explicit Lookahead(std::unique_ptr<ByteStream> bytes) : bytes_(std::move(bytes)) {}

  // The next bytes, `size` of them unless the stream ends.
  std::string_view peek(size_t size) {
    while (buffer_.size() - begin_ < size) {
      buffer_.erase(0, std::exchange(begin_, 0));
      const size_t before = buffer_.size();
      buffer_.resize(before + kBlock);
      const size_t count = bytes_->read(buffer_.data() + before, kBlock);
      buffer_.resize(before + count);
      if (count == 0) break;
    }
    return std::string_view(buffer_).substr(begin_, size);
  }

  void take(size_t size) { begin_ += size; }

  size_t read(char* to, size_t size) override {
    const size_t held = std::min(size, buffer_.size() - begin_);
    if (held == 0) return bytes_->read(to, size);
    std::memcpy(to, buffer_.data() + begin_, held);
    take(held);
    return held;
  }

 private:
  static constexpr size_t kBlock = 1 << 16;
  std::unique_ptr<ByteStream> bytes_;
  std::string buffer_;
  size_t begin_ = 0;
};

}  // namespace gpt::prepare
