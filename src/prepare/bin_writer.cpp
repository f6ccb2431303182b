#include "bin_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/data/llmc_format.h"

namespace gpt {
namespace {

constexpr size_t kBuffer = 1 << 20;

// With an expected ten documents on the smaller side it is never empty by chance (1 in 20,000) nor far from its share.
int64_t documents_for(double validation_fraction) {
  constexpr double kExpected = 10;
  const double smaller = std::min(validation_fraction, 1 - validation_fraction);
  return smaller > 0 ? static_cast<int64_t>(std::ceil(kExpected / smaller)) : std::numeric_limits<int64_t>::max();
}

template <class Id>
int64_t sum_of(std::string_view ids, const std::vector<int32_t>& token_bytes) {
  int64_t sum = 0;
  for (size_t i = 0; i < ids.size(); i += sizeof(Id)) {
    Id id;
    std::memcpy(&id, ids.data() + i, sizeof id);
    sum += token_bytes.at(id);
  }
  return sum;
}

}  // namespace

IdFile::IdFile(const std::string& path, int64_t header_bytes, int width, std::function<void()> still_going)
    : file_(path), header_bytes_(header_bytes), width_(width), still_going_(std::move(still_going)) {
  file_.write(std::string(header_bytes, '\0'));
}

void IdFile::append(std::string_view ids) {
  buffer_ += ids;
  tokens_ += static_cast<int64_t>(ids.size()) / width_;
  if (buffer_.size() >= kBuffer) flush();
}

void IdFile::flush() {
  file_.write(buffer_);
  hash_.update(buffer_);
  buffer_.clear();
}

template <class Take>
void IdFile::read(int64_t begin, int64_t end, Take&& take) {
  flush();
  std::string block;
  for (int64_t at = begin * width_; at < end * width_; at += static_cast<int64_t>(block.size())) {
    still_going_();
    block.resize(std::min<int64_t>(kBuffer, end * width_ - at));
    if (file_.read(header_bytes_ + at, block.data(), block.size()) < block.size()) {
      throw Error(ExitCode::disk, fmt::format("{}: it is shorter than what was written", file_.unfinished_path()));
    }
    take(block);
  }
}

void IdFile::append_from(IdFile& other, int64_t begin, int64_t end) {
  other.read(begin, end, [this](const std::string& ids) { append(ids); });
}

int64_t IdFile::bytes_of_text(int64_t begin, int64_t end, const std::vector<int32_t>& token_bytes) {
  int64_t sum = 0;
  read(begin, end, [&](const std::string& ids) {
    sum += width_ == 2 ? sum_of<uint16_t>(ids, token_bytes) : sum_of<uint32_t>(ids, token_bytes);
  });
  return sum;
}

void IdFile::truncate(int64_t tokens) {
  flush();
  file_.resize(header_bytes_ + tokens * width_);
  tokens_ = tokens;
}

void IdFile::write_header(std::string_view header) { file_.overwrite(0, header); }

std::string IdFile::hash() {
  flush();
  return hash_.hex();
}

void IdFile::commit() {
  flush();
  file_.commit();
}

BinWriter::BinWriter(std::string folder, BinFormat format, int width_bytes, double validation_fraction,
                     std::function<void()> still_going)
    : folder_(std::move(folder)),
      format_(format),
      width_(width_bytes),
      validation_fraction_(validation_fraction),
      still_going_(std::move(still_going)),
      documents_needed_(documents_for(validation_fraction)) {
  train_ = new_file(file_names(format).front().c_str());
  validation_ = new_file("val.bin");
}

BinWriter::~BinWriter() = default;

std::vector<std::string> BinWriter::file_names(BinFormat format) {
  if (format == BinFormat::prepared) return {kBinFile};
  return {"train.bin", "val.bin"};
}

std::unique_ptr<IdFile> BinWriter::new_file(const char* name) const {
  const int64_t header_bytes = format_ == BinFormat::llmc ? llmc::kHeaderBytes : 0;
  return std::make_unique<IdFile>(folder_ + "/" + name, header_bytes, width_, still_going_);
}

void BinWriter::append(const EncodedChunk& chunk) {
  std::string_view ids = chunk.ids;
  for (const EncodedPart& part : chunk.parts) {
    const std::string_view own = ids.substr(0, part.tokens * width_);
    ids.remove_prefix(own.size());
    SplitCounts& counts = part.validation ? validation_counts_ : train_counts_;
    counts.tokens += part.tokens;
    counts.documents += part.last;
    counts.bytes += part.bytes;
    documents_ += part.last;
    if (separated_) {
      (part.validation ? validation_ : train_)->append(own);
    } else {
      train_->append(own);
      undecided_.push_back(part);
      if (documents_ >= documents_needed_) separate();
    }
  }
}

// There are enough documents: those that lie in their order in train_ go where they belong.
void BinWriter::separate() {
  const std::unique_ptr<IdFile> all = std::exchange(train_, new_file(file_names(format_).front().c_str()));
  int64_t begin = 0;
  for (const EncodedPart& part : undecided_) {
    (part.validation ? validation_ : train_)->append_from(*all, begin, begin + part.tokens);
    begin += part.tokens;
  }
  undecided_.clear();
  separated_ = true;
}

void BinWriter::finish(const std::vector<int32_t>& token_bytes, Metadata& metadata) {
  const bool by_documents = separated_ && train_->tokens() > 0 && validation_->tokens() > 0;
  metadata.split = by_documents ? "documents" : "tokens";
  metadata.train = train_counts_;
  metadata.validation = validation_counts_;
  if (!by_documents) {
    split_tokens(token_bytes, metadata);
  } else if (format_ == BinFormat::prepared) {
    train_->append_from(*validation_, 0, validation_->tokens());
  }
  if (format_ == BinFormat::prepared) metadata.bin_hash = train_->hash();
  if (format_ == BinFormat::llmc) {
    write_header(*train_);
    write_header(*validation_);
  }
}

void BinWriter::split_tokens(const std::vector<int32_t>& token_bytes, Metadata& metadata) {
  // Many documents that are all alike belong together, and may all have been drawn for validation.
  if (train_->tokens() == 0 && validation_->tokens() > 0) {
    train_->append_from(*validation_, 0, validation_->tokens());
    validation_->truncate(0);
  }
  const int64_t tokens = train_->tokens();
  const int64_t cut = std::max(training_tokens(tokens, validation_fraction_), std::min<int64_t>(tokens, 1));
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
void BinWriter::write_header(IdFile& file) const {
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

}  // namespace gpt
