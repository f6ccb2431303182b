// Token ids in memory or mapped from a file, 16 or 32 bits wide: what a split is. Counts and positions are 64-bit, and a
// file may be larger than memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gpt::data {

// Bytes per id: 2 where 16 bits hold vocab_size - 1, else 4.
int width_for(int64_t vocab_size);

// What a token of conversations is, bit by bit.
struct TokenMark {
  static constexpr uint8_t kLearned = 1;  // the model learns to say it
  static constexpr uint8_t kBegins = 2;   // a conversation begins with it
  static constexpr uint8_t kEnds = 4;  // a turn ends with it, and a conversation that is too long may be cut behind it
};

// A view of token ids, which are unsigned; copies share the storage. Those of conversations have marks, a byte for each.
class Tokens {
 public:
  Tokens() = default;
  // `size` ids at `data`, which `storage` keeps alive.
  Tokens(std::shared_ptr<const void> storage, const void* data, int64_t size, int width)
      : storage_(std::move(storage)), data_(data), size_(size), width_(width) {}
  // The ids in the width for the vocabulary. Throws gpt::Error(data) for an id outside it.
  static Tokens from_ids(const std::vector<int32_t>& ids, int64_t vocab_size);

  int64_t size() const { return size_; }
  int width() const { return width_; }  // bytes per id: 2 or 4
  int64_t bytes() const { return size_ * width_; }
  const void* data() const { return data_; }
  int32_t operator[](int64_t i) const {
    return width_ == 2 ? static_cast<const uint16_t*>(data_)[i]
                       : static_cast<int32_t>(static_cast<const uint32_t*>(data_)[i]);
  }
  Tokens slice(int64_t begin, int64_t end) const;

  // Tokens of plain text have no marks: every token is learned, wherever a sequence begins.
  bool has_marks() const { return marks_ != nullptr; }
  uint8_t mark(int64_t i) const { return marks_[i]; }
  const uint8_t* marks() const { return marks_; }  // size() of them, or null
  bool is_learned(int64_t i) const { return !marks_ || (marks_[i] & TokenMark::kLearned) != 0; }
  // The same ids with size() marks at `marks`, which `storage` keeps alive.
  Tokens with_marks(std::shared_ptr<const void> storage, const uint8_t* marks) const;

 private:
  std::shared_ptr<const void> storage_;
  const void* data_ = nullptr;
  int64_t size_ = 0;
  int width_ = 2;
  std::shared_ptr<const void> marks_storage_;
  const uint8_t* marks_ = nullptr;
};

enum class TokenFormat {
  raw,       // ids and nothing else: gpt-prepare's, nanoGPT's
  llmc,      // llm.c's: 256 int32 of header, then the ids
  megatron,  // Megatron's: the ids in FILE.bin, their sequences in FILE.idx
  array,     // NumPy's .npy and lit-gpt's packed files: a header that says how wide the ids are
};

struct TokenFile {
  Tokens tokens;
  TokenFormat format = TokenFormat::raw;
};

// Opens a bin of any of these formats: Megatron's shows by the .idx beside it, others by their magic numbers. `width_bytes`
// is what the metadata says of the ids; without it raw ones are as wide as `vocab_size` needs, or wider where their zeros show
// that, which a line of the log says. Every count and offset of a header is checked against the sizes of the files before it
// is used. Throws gpt::Error(data): file, position, value.
TokenFile open_token_file(const std::string& path, std::optional<int> width_bytes = {}, int64_t vocab_size = 0);

// Whether the name is that of a file of token ids, rather than of text.
bool has_name_of_bin(const std::string& path);

// The position of the first id that is not below `vocab_size`, or -1.
int64_t first_id_outside(const Tokens& tokens, int64_t vocab_size);

}  // namespace gpt::data
