#include "split_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/data/token_file.h"

namespace gpt::prepare {
namespace {

constexpr size_t kBuffer = 1 << 20;

int32_t id_at(const std::string& ids, int64_t i, int width) {
  uint32_t id = 0;  // little-endian
  std::memcpy(&id, ids.data() + i * width, static_cast<size_t>(width));
  return static_cast<int32_t>(id);
}

bool has(char marks, uint8_t mark) { return (static_cast<uint8_t>(marks) & mark) != 0; }

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

void IdFile::read(int64_t begin, int64_t end, const std::function<void(const std::string& block)>& take) {
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

void SplitFile::append(std::string_view ids, std::string_view marks) {
  ids_->append(ids);
  if (marks_) marks_->append(marks);
}

void SplitFile::append_from(SplitFile& other, int64_t begin, int64_t end) {
  ids_->append_from(*other.ids_, begin, end);
  if (marks_) marks_->append_from(*other.marks_, begin, end);
}

void SplitFile::truncate(int64_t tokens) {
  ids_->truncate(tokens);
  if (marks_) marks_->truncate(tokens);
}

void SplitFile::commit() {
  ids_->commit();
  if (marks_) marks_->commit();
}

int64_t SplitFile::bytes_of_text(int64_t begin, int64_t end, const std::vector<int32_t>& token_bytes) {
  int64_t sum = 0;
  const int width = ids_->width();
  ids_->read(begin, end, [&](const std::string& ids) {
    const int64_t count = std::ssize(ids) / width;
    for (int64_t i = 0; i < count; ++i) sum += token_bytes.at(id_at(ids, i, width));
  });
  return sum;
}

data::SplitCounts SplitFile::counts_from(int64_t begin, const std::vector<int32_t>& token_bytes) {
  data::SplitCounts counts{.tokens = tokens() - begin};
  const int width = ids_->width();
  int64_t at = begin;
  ids_->read(begin, tokens(), [&](const std::string& ids) {
    std::string marks;
    const int64_t end = at + std::ssize(ids) / width;
    marks_->read(at, end, [&marks](const std::string& block) { marks += block; });
    for (int64_t i = 0; i < std::ssize(marks); ++i) {
      counts.documents += has(marks[i], data::TokenMark::kBegins);
      if (!has(marks[i], data::TokenMark::kLearned)) continue;
      ++counts.learned;
      counts.bytes += token_bytes.at(id_at(ids, i, width));
    }
    at = end;
  });
  return counts;
}

int64_t SplitFile::conversation_near(int64_t position) {
  int64_t nearest = tokens(), at = 0;
  bool is_found = false;
  marks_->read(0, tokens(), [&](const std::string& marks) {
    for (const char mark : marks) {
      const bool is_candidate = at > 0 && has(mark, data::TokenMark::kBegins);
      if (is_candidate && (!is_found || std::abs(at - position) < std::abs(nearest - position))) {
        nearest = at;
        is_found = true;
      }
      ++at;
    }
  });
  return nearest;
}

}  // namespace gpt::prepare
