#include "gpt/exchange/gguf.h"

#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "gpt/core/error.h"

namespace gpt::exchange {
namespace {

constexpr std::string_view kGgufMagic = "GGUF";
constexpr uint32_t kGgufVersion = 3;
constexpr uint64_t kGgufAlignment = 32;   // bytes: what holds where general.alignment is not given
constexpr uint64_t kBeforeMetadata = 24;  // bytes: magic, version and two counts
constexpr int64_t kQ8Bytes = 2 + kQ8Block;

// Types of metadata, as the format numbers them.
enum ValueType : uint32_t { kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9 };

template <typename Number>
void append(std::string& bytes, Number value) {  // little-endian, as this machine
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  bytes.append(raw, sizeof raw);
}

void append_text(std::string& bytes, std::string_view text) {
  append<uint64_t>(bytes, text.size());
  bytes += text;
}

uint64_t aligned(uint64_t bytes) { return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment; }

uint64_t size_of(const GgufTensor& tensor) {
  int64_t values = 1;
  for (const int64_t size : tensor.shape) values *= size;
  return gguf_bytes(tensor.type, values);
}

std::string gguf_header(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  std::string bytes(kGgufMagic);
  append<uint32_t>(bytes, kGgufVersion);
  append<uint64_t>(bytes, tensors.size());
  append<uint64_t>(bytes, metadata.count());
  bytes += metadata.bytes();
  uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    append_text(bytes, tensor.name);
    append<uint32_t>(bytes, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) append<int64_t>(bytes, tensor.shape[i]);
    append(bytes, static_cast<uint32_t>(tensor.type));
    append<uint64_t>(bytes, offset);
    offset += aligned(size_of(tensor));
  }
  bytes.resize(aligned(bytes.size()));
  return bytes;
}

std::vector<uint64_t> gguf_sizes(const std::vector<GgufTensor>& tensors) {
  std::vector<uint64_t> sizes;
  for (const GgufTensor& tensor : tensors) sizes.push_back(size_of(tensor));
  return sizes;
}

uint64_t file_size(uint64_t header, const std::vector<uint64_t>& sizes) {
  for (const uint64_t size : sizes) header += aligned(size);
  return header;
}

// perf: of at most 127 in magnitude, so that the compiler can convert several at once, which it cannot with std::round().
int8_t rounded_away_from_zero(float value) {
  const auto whole = static_cast<int32_t>(value);
  const float rest = value - static_cast<float>(whole);
  return static_cast<int8_t>(whole + static_cast<int32_t>(rest >= 0.5f) - static_cast<int32_t>(rest <= -0.5f));
}

}  // namespace

uint64_t gguf_bytes(GgufType type, int64_t values) {
  switch (type) {
    case GgufType::f32: return static_cast<uint64_t>(values) * 4;
    case GgufType::f16:
    case GgufType::bf16: return static_cast<uint64_t>(values) * 2;
    case GgufType::q8_0: return static_cast<uint64_t>(values / kQ8Block * kQ8Bytes);
  }
  throw std::logic_error("no such type of GGUF");
}

bool quantize_q8_0(std::span<const float> values, std::span<std::byte> blocks) {
  bool finite = true;
  std::byte* to = blocks.data();
  for (const float* from = values.data(); from != values.data() + values.size(); from += kQ8Block, to += kQ8Bytes) {
    float largest = 0;
    for (int64_t i = 0; i < kQ8Block; ++i) largest = std::max(largest, std::abs(from[i]));
    const float scale = largest / 127;
    const float reciprocal = std::isfinite(1 / scale) ? 1 / scale : 0;
    const auto half = static_cast<c10::Half>(scale);
    int8_t quantized[kQ8Block];
    for (int64_t i = 0; i < kQ8Block; ++i) quantized[i] = rounded_away_from_zero(from[i] * reciprocal);
    std::memcpy(to, &half, sizeof half);
    std::memcpy(to + sizeof half, quantized, sizeof quantized);
    finite &= std::isfinite(static_cast<float>(half));
  }
  return finite;
}

void GgufMetadata::begin(std::string_view key, uint32_t type) {
  ++count_;
  append_text(bytes_, key);
  append(bytes_, type);
}

void GgufMetadata::begin_list(std::string_view key, uint32_t type, size_t size) {
  begin(key, kArray);
  append(bytes_, type);
  append<uint64_t>(bytes_, size);
}

void GgufMetadata::add(std::string_view key, uint32_t value) {
  begin(key, kUint32);
  append(bytes_, value);
}

void GgufMetadata::add(std::string_view key, float value) {
  begin(key, kFloat32);
  append(bytes_, value);
}

void GgufMetadata::add(std::string_view key, bool value) {
  begin(key, kBool);
  append<uint8_t>(bytes_, value ? 1 : 0);
}

void GgufMetadata::add(std::string_view key, std::string_view value) {
  begin(key, kString);
  append_text(bytes_, value);
}

void GgufMetadata::add(std::string_view key, std::span<const int32_t> values) {
  begin_list(key, kInt32, values.size());
  for (const int32_t value : values) append(bytes_, value);
}

void GgufMetadata::add(std::string_view key, std::span<const float> values) {
  begin_list(key, kFloat32, values.size());
  for (const float value : values) append(bytes_, value);
}

void GgufMetadata::add(std::string_view key, std::span<const std::string> values) {
  begin_list(key, kString, values.size());
  for (const std::string& value : values) append_text(bytes_, value);
}

bool gguf_begins_with(const std::string& path, const GgufMetadata& first) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const MappedFile file(path, ExitCode::config);
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return bytes.starts_with(kGgufMagic) && bytes.size() > kBeforeMetadata &&
         bytes.substr(kBeforeMetadata).starts_with(first.bytes());
}

GgufWriter::GgufWriter(const std::string& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors)
    : GgufWriter(path, gguf_header(metadata, tensors), gguf_sizes(tensors)) {}

GgufWriter::GgufWriter(const std::string& path, const std::string& header, std::vector<uint64_t> sizes)
    : file_(path, file_size(header.size(), sizes)), sizes_(std::move(sizes)) {
  file_.write(header);
}

void GgufWriter::add(std::span<const std::byte> piece) {
  if (next_ >= sizes_.size() || piece.size() > sizes_[next_] - written_)
    throw std::logic_error("GGUF: more than the tensor's bytes");
  file_.write(piece);
  written_ += piece.size();
  if (written_ == sizes_[next_]) pad();
}

void GgufWriter::pad() {
  constexpr char kZeros[kGgufAlignment] = {};
  file_.write(std::string_view(kZeros, aligned(written_) - written_));
  ++next_;
  written_ = 0;
}

void GgufWriter::commit() {
  if (next_ != sizes_.size()) throw std::logic_error("GGUF: tensors are missing");
  file_.commit();
}

}  // namespace gpt::exchange
