// The file format safetensors, LibTorch-free: eight bytes with the header's length, a JSON header, then the values of all tensors without
// a gap. Files come from anywhere, so nothing that the header says is believed before it is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/core/file.h"

namespace gpt::exchange {

// What a header says of a tensor.
struct TensorForm {
  std::string name;
  std::string dtype;  // as the format spells it: F32, F16, BF16, I64, ...
  std::vector<int64_t> shape;
};

struct StoredTensor : TensorForm {
  std::span<const std::byte> bytes;  // row by row, little-endian and not aligned; valid while the reader lives
};

// Bytes of one value, 0 for a type that the format does not have.
int64_t bytes_of_dtype(std::string_view dtype);

// Maps a file and checks the whole header: sizes, offsets and names. Values are not looked at. Throws gpt::Error(checkpoint) beginning
// with the path and saying what is wrong.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);
  const std::string& path() const { return path_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the order of their names
  const StoredTensor* find(std::string_view name) const;                 // nullptr where there is none
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::string path_;
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// A new file with these tensors, sorted by their names, whose values follow one tensor at a time: all of them need not be in memory at
// once. Equal tensors give equal bytes. The path holds the old file until commit(). Throws gpt::Error(disk).
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, const std::vector<TensorForm>& sorted);
  void add(std::span<const std::byte> bytes);  // of the next tensor: as many as its form says
  void commit();                               // when all are there

 private:
  SafetensorsWriter(const std::string& path, const std::string& header, std::vector<uint64_t> sizes);

  AtomicFile file_;
  std::vector<uint64_t> sizes_;  // bytes of each tensor
  size_t next_ = 0;
};

}  // namespace gpt::exchange
