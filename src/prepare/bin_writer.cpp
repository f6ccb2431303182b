#include "bin_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/data/llmc_format.h"
#include "split_choice.h"

namespace gpt::prepare {
BinWriter::BinWriter(std::string folder, BinFormat format, int width_bytes, double validation_fraction,
                     std::function<void()> still_going, bool has_marks)
    : folder_(std::move(folder)),
      format_(format),
      width_(width_bytes),
      validation_fraction_(validation_fraction),
      still_going_(std::move(still_going)),
      has_marks_(has_marks),
      documents_needed_(documents_to_split(validation_fraction)) {
  train_ = new_file(file_names(format).front(), data::kMarksFile);
  validation_ = new_file("val.bin", "val_marks.bin");
}

BinWriter::~BinWriter() = default;

std::vector<std::string> BinWriter::file_names(BinFormat format) {
  if (format == BinFormat::prepared) return {data::kBinFile};
  return {"train.bin", "val.bin"};
}

std::unique_ptr<SplitFile> BinWriter::new_file(const std::string& name, const std::string& marks_name) const {
  const int64_t header_bytes = format_ == BinFormat::llmc ? llmc::kHeaderBytes : 0;
  auto ids = std::make_unique<IdFile>(folder_ + "/" + name, header_bytes, width_, still_going_);
  if (!has_marks_) return std::make_unique<SplitFile>(std::move(ids), nullptr);
  return std::make_unique<SplitFile>(std::move(ids),
                                     std::make_unique<IdFile>(folder_ + "/" + marks_name, 0, 1, still_going_));
}

void BinWriter::append(const EncodedChunk& chunk) {
  std::string_view ids = chunk.ids, marks = chunk.marks;
  for (const EncodedPart& part : chunk.parts) {
    const std::string_view own = ids.substr(0, part.tokens * width_);
    ids.remove_prefix(own.size());
    const std::string_view own_marks = marks.substr(0, part.tokens);
    marks.remove_prefix(own_marks.size());
    data::SplitCounts& counts = part.validation ? validation_counts_ : train_counts_;
    counts.tokens += part.tokens;
    counts.documents += part.last;
    counts.bytes += part.bytes;
    counts.learned += part.learned;
    documents_ += part.last;
    if (separated_) {
      (part.validation ? validation_ : train_)->append(own, own_marks);
    } else {
      train_->append(own, own_marks);
      undecided_.push_back(part);
      if (documents_ >= documents_needed_) separate();
    }
  }
}

// There are enough documents: those that lie in their order in train_ go where they belong.
void BinWriter::separate() {
  const std::unique_ptr<SplitFile> all = std::exchange(train_, new_file(file_names(format_).front(), data::kMarksFile));
  int64_t begin = 0;
  for (const EncodedPart& part : undecided_) {
    (part.validation ? validation_ : train_)->append_from(*all, begin, begin + part.tokens);
    begin += part.tokens;
  }
  undecided_.clear();
  separated_ = true;
}

void BinWriter::finish(const std::vector<int32_t>& token_bytes, data::Metadata& metadata) {
  const bool by_documents = separated_ && train_->tokens() > 0 && validation_->tokens() > 0;
  metadata.split = by_documents || has_marks_ ? "documents" : "tokens";
  metadata.train = train_counts_;
  metadata.validation = validation_counts_;
  if (!by_documents) {
    gather();
    has_marks_ ? split_conversations(token_bytes, metadata) : split_tokens(token_bytes, metadata);
  } else if (format_ == BinFormat::prepared) {
    train_->append_from(*validation_, 0, validation_->tokens());
  }
  if (format_ == BinFormat::prepared) metadata.bin_hash = train_->hash();
  if (has_marks_) metadata.conversations.marks_hash = train_->marks_hash();
  if (format_ == BinFormat::llmc) {
    write_header(*train_);
    write_header(*validation_);
  }
}

// Many documents that are all alike belong together, and may all have been drawn for validation.
void BinWriter::gather() {
  if (train_->tokens() > 0 || validation_->tokens() == 0) return;
  train_->append_from(*validation_, 0, validation_->tokens());
  validation_->truncate(0);
}

// The last ones, whole, are for validation; at least one stays on either side.
void BinWriter::split_conversations(const std::vector<int32_t>& token_bytes, data::Metadata& metadata) {
  const int64_t tokens = train_->tokens();
  const int64_t cut = validation_fraction_ == 0
                          ? tokens
                          : train_->conversation_near(data::training_tokens(tokens, validation_fraction_));
  metadata.validation = train_->counts_from(cut, token_bytes);
  metadata.train = {.tokens = cut,
                    .documents = documents_ - metadata.validation.documents,
                    .bytes = train_counts_.bytes + validation_counts_.bytes - metadata.validation.bytes,
                    .learned = train_counts_.learned + validation_counts_.learned - metadata.validation.learned};
}

void BinWriter::split_tokens(const std::vector<int32_t>& token_bytes, data::Metadata& metadata) {
  const int64_t tokens = train_->tokens();
  const int64_t cut = std::max(data::training_tokens(tokens, validation_fraction_), std::min<int64_t>(tokens, 1));
  const int64_t bytes = train_counts_.bytes + validation_counts_.bytes;
  metadata.train = {.tokens = cut, .documents = documents_before(cut)};
  metadata.validation = {.tokens = tokens - cut,
                         .documents = documents_ - metadata.train.documents,
                         .bytes = train_->bytes_of_text(cut, tokens, token_bytes)};
  metadata.train.bytes = bytes - metadata.validation.bytes;
  if (format_ == BinFormat::prepared) return;
  validation_->append_from(*train_, cut, tokens);
  train_->truncate(cut);
}

// Documents that begin ahead of `token`.
int64_t BinWriter::documents_before(int64_t token) const {
  if (separated_) {  // yet all on one side, because they are alike
    return static_cast<int64_t>(static_cast<double>(documents_) * static_cast<double>(token) / train_->tokens());
  }
  int64_t documents = 0, begin = 0;
  bool at_start = true;
  for (const EncodedPart& part : undecided_) {
    documents += at_start && begin < token;
    at_start = part.last;
    begin += part.tokens;
  }
  return documents;
}

// As llm.c's dataloader expects it.
void BinWriter::write_header(SplitFile& file) const {
  if (file.tokens() > std::numeric_limits<int32_t>::max()) {
    throw Error(ExitCode::data,
                fmt::format("{} tokens are more than llm.c's header can count ({}); prepare the input in parts",
                            file.tokens(), std::numeric_limits<int32_t>::max()));
  }
  const llmc::Version& version = width_ == llmc::kGpt2.width ? llmc::kGpt2 : llmc::kLlama3;
  const std::array header{version.magic, version.number, static_cast<int32_t>(file.tokens())};  // zeros follow it
  file.write_header({reinterpret_cast<const char*>(header.data()), sizeof header});
}

void BinWriter::commit() {
  train_->commit();
  if (format_ != BinFormat::prepared) validation_->commit();
}

}  // namespace gpt::prepare
