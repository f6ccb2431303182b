// Encoded documents to bins of token ids: training and validation apart, and nothing under its name before commit().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "gpt/data/metadata.h"
#include "gpt/prepare/prepare_options.h"

namespace gpt {

struct EncodedPart {
  int64_t tokens = 0;
  int64_t bytes = 0;  // bytes of text
  bool last = true;   // part of its document
  bool validation = false;
};

struct EncodedChunk {
  std::string ids;  // as they lie in the bin
  std::vector<EncodedPart> parts;
  int64_t invalid_utf8_bytes = 0;
  int64_t ends_as_text = 0;  // texts of the end-of-text token that became ordinary tokens
  int64_t unseparated = 0;   // documents that end with neither an end of text nor a line break
};

// Ids on their way to a file.
class IdFile {
 public:
  // `still_going` is called now and then while ids are read back; what it throws ends that.
  IdFile(const std::string& path, int64_t header_bytes, int width, std::function<void()> still_going);
  void append(std::string_view ids);
  void append_from(IdFile& other, int64_t begin, int64_t end);  // positions of tokens
  void truncate(int64_t tokens);
  int64_t bytes_of_text(int64_t begin, int64_t end, const std::vector<int32_t>& token_bytes);
  void write_header(std::string_view header);
  int64_t tokens() const { return tokens_; }
  std::string hash();  // the hash of the ids
  void commit();

 private:
  void flush();
  template <class Take>
  void read(int64_t begin, int64_t end, Take&& take);

  AtomicFile file_;
  const int64_t header_bytes_;
  const int width_;
  const std::function<void()> still_going_;
  int64_t tokens_ = 0;
  std::string buffer_;
  Hash128 hash_;
};

class BinWriter {
 public:
  BinWriter(
      std::string folder, BinFormat format, int width_bytes, double validation_fraction,
      std::function<void()> still_going = [] {});
  ~BinWriter();

  void append(const EncodedChunk& chunk);

  // No more will come. Documents were split by `validation` of their parts where there are enough of them for that;
  // otherwise the last tokens are for validation. Fills in the counts, the split and the bin's hash.
  // `token_bytes`: the bytes of text that each id stands for.
  void finish(const std::vector<int32_t>& token_bytes, Metadata& metadata);
  void commit();  // after finish()

  static std::vector<std::string> file_names(BinFormat format);

 private:
  std::unique_ptr<IdFile> new_file(const char* name) const;
  void separate();
  void split_tokens(const std::vector<int32_t>& token_bytes, Metadata& metadata);
  int64_t documents_before(int64_t token) const;
  void write_header(IdFile& file) const;

  const std::string folder_;
  const BinFormat format_;
  const int width_;
  const double validation_fraction_;
  const std::function<void()> still_going_;
  const int64_t documents_needed_;  // for a split by documents
  int64_t documents_ = 0;
  bool separated_ = false;
  SplitCounts train_counts_, validation_counts_;
  std::unique_ptr<IdFile> train_, validation_;
  // Until there are enough documents all are in train_ in their order, and these tell where each part ends.
  std::vector<EncodedPart> undecided_;
};

}  // namespace gpt
