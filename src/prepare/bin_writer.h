// Encoded documents to bins of token ids: training and validation apart, and nothing under its name before commit().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/data/metadata.h"
#include "gpt/prepare/prepare_options.h"
#include "split_file.h"

namespace gpt::prepare {

struct EncodedPart {
  int64_t tokens = 0;
  int64_t bytes = 0;    // bytes of text; of a conversation, of what is learned
  int64_t learned = 0;  // tokens of a conversation
  bool last = true;     // part of its document
  bool validation = false;
};

struct EncodedChunk {
  std::string ids;    // as they lie in the bin
  std::string marks;  // of conversations, a byte for each id
  std::vector<EncodedPart> parts;
  int64_t invalid_utf8_bytes = 0;
  int64_t ends_as_text = 0;  // texts of the end-of-text token that became ordinary tokens
  int64_t unseparated = 0;   // documents that end with neither an end of text nor a line break
  data::ConversationCounts conversations = {};
};

class BinWriter {
 public:
  // `has_marks`: of conversations, for which the format is BinFormat::prepared.
  BinWriter(
      std::string folder, BinFormat format, int width_bytes, double validation_fraction,
      std::function<void()> still_going = [] {}, bool has_marks = false);
  ~BinWriter();

  void append(const EncodedChunk& chunk);

  // No more will come. Documents were split by `validation` of their parts where there are enough of them for that;
  // otherwise the last tokens are for validation, of conversations the last ones whole. Fills in the counts, the split and the hashes.
  // `token_bytes`: the bytes of text that each id stands for.
  void finish(const std::vector<int32_t>& token_bytes, data::Metadata& metadata);
  void commit();  // after finish()

  static std::vector<std::string> file_names(BinFormat format);

 private:
  std::unique_ptr<SplitFile> new_file(const std::string& name, const std::string& marks_name) const;
  void separate();
  void gather();
  void split_tokens(const std::vector<int32_t>& token_bytes, data::Metadata& metadata);
  void split_conversations(const std::vector<int32_t>& token_bytes, data::Metadata& metadata);
  int64_t documents_before(int64_t token) const;
  void write_header(SplitFile& file) const;

  const std::string folder_;
  const BinFormat format_;
  const int width_;
  const double validation_fraction_;
  const std::function<void()> still_going_;
  const bool has_marks_;
  const int64_t documents_needed_;  // for a split by documents
  int64_t documents_ = 0;
  bool separated_ = false;
  data::SplitCounts train_counts_, validation_counts_;
  std::unique_ptr<SplitFile> train_, validation_;
  // Until there are enough documents all are in train_ in their order, and these tell where each part ends.
  std::vector<EncodedPart> undecided_;
};

}  // namespace gpt::prepare
