// The tokens of a split on their way to files: their ids, and beside them the marks of conversations.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "gpt/data/metadata.h"

namespace gpt::prepare {

// Ids, or marks, on their way to a file: numbers of `width` bytes.
class IdFile {
 public:
  // `still_going` is called now and then while ids are read back; what it throws ends that.
  IdFile(const std::string& path, int64_t header_bytes, int width, std::function<void()> still_going);
  void append(std::string_view ids);
  void append_from(IdFile& other, int64_t begin, int64_t end);  // positions of tokens
  void truncate(int64_t tokens);
  // Calls `take` with what is in the file, block by block.
  void read(int64_t begin, int64_t end, const std::function<void(const std::string& block)>& take);
  void write_header(std::string_view header);
  int64_t tokens() const { return tokens_; }
  int width() const { return width_; }
  std::string hash();  // of what was appended
  void commit();

 private:
  void flush();

  AtomicFile file_;
  const int64_t header_bytes_;
  const int width_;
  const std::function<void()> still_going_;
  int64_t tokens_ = 0;
  std::string buffer_;
  Hash128 hash_;
};

class SplitFile {
 public:
  // `marks`: null where the tokens have none.
  SplitFile(std::unique_ptr<IdFile> ids, std::unique_ptr<IdFile> marks)
      : ids_(std::move(ids)), marks_(std::move(marks)) {}
  void append(std::string_view ids, std::string_view marks);
  void append_from(SplitFile& other, int64_t begin, int64_t end);  // positions of tokens
  void truncate(int64_t tokens);
  void write_header(std::string_view header) { ids_->write_header(header); }
  int64_t tokens() const { return ids_->tokens(); }
  std::string hash() { return ids_->hash(); }
  std::string marks_hash() { return marks_->hash(); }
  void commit();

  int64_t bytes_of_text(int64_t begin, int64_t end, const std::vector<int32_t>& token_bytes);
  // Counts of the conversations from `begin` on, where one begins.
  data::SplitCounts counts_from(int64_t begin, const std::vector<int32_t>& token_bytes);
  // Where a conversation begins that is not the first one, as near to `position` as there is one; the end where it is the only one.
  int64_t conversation_near(int64_t position);

 private:
  std::unique_ptr<IdFile> ids_, marks_;
};

}  // namespace gpt::prepare
