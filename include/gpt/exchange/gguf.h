// The file format GGUF, version 3, LibTorch-free: metadata, a table of tensors, then their values, each beginning at a multiple of 32
// bytes. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/core/file.h"

namespace gpt::exchange {

enum class GgufType : uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };  // the format's numbers

// q8_0: so many neighbours in a row become a float16 scale and as many int8.
inline constexpr int64_t kQ8Block = 32;

uint64_t gguf_bytes(GgufType type, int64_t values);  // for q8_0 whole blocks

// The bytes that ggml's reference and gguf.quants write: the scale is the largest magnitude / 127 rounded to float16, the values are
// divided by the scale before it was rounded, halves go away from zero. A block whose scale has no float32 reciprocal is zeros. `values`
// are whole blocks. False if a scale is not finite: then `blocks` is of no use.
bool quantize_q8_0(std::span<const float> values, std::span<std::byte> blocks);

// Key and value pairs, in the order in which they are added.
class GgufMetadata {
 public:
  void add(std::string_view key, uint32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, bool value);
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }  // it would be a bool
  void add(std::string_view key, std::span<const int32_t> values);
  void add(std::string_view key, std::span<const float> values);
  void add(std::string_view key, std::span<const std::string> values);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }  // as the file has them

 private:
  void begin(std::string_view key, uint32_t type);
  void begin_list(std::string_view key, uint32_t type, size_t size);

  uint64_t count_ = 0;
  std::string bytes_;
};

// Whether the file is there and its metadata begins with `first`.
bool gguf_begins_with(const std::string& path, const GgufMetadata& first);

struct GgufTensor {
  std::string name;
  GgufType type;
  std::vector<int64_t> shape;  // as this program has it, [rows, columns]; the file turns it around
};

// A new file, whose values follow in the order of the tensors and in pieces of any size: they need not be in memory at once. Equal input
// gives equal bytes. The path holds the old file until commit(). Throws gpt::Error(disk).
class GgufWriter {
 public:
  GgufWriter(const std::string& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors);
  void add(std::span<const std::byte> piece);  // of the tensor that is not complete yet
  void commit();                               // when all are there

 private:
  GgufWriter(const std::string& path, const std::string& header, std::vector<uint64_t> sizes);
  void pad();

  AtomicFile file_;
  std::vector<uint64_t> sizes_;  // bytes of each tensor
  size_t next_ = 0;
  uint64_t written_ = 0;  // of the next one
};

}  // namespace gpt::exchange
