#include "document_stream.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

namespace gpt::prepare {
namespace {

// A separator ends a document where it is all of a line. Empty lines after it go with it. Where CRs are the line ends, they become LF.
class PlainText final : public DocumentStream {
 public:
  PlainText(Content content, const std::vector<std::string>& separators)
      : bytes_(std::move(content.bytes)), separators_(separators), line_end_(content.has_cr_lines ? '\r' : '\n') {
    for (const std::string& separator : separators_) longest_ = std::max(longest_, separator.size());
    skip(content.byte_order_mark);
  }
  bool next_document() override {
    if (!std::exchange(begun_, true)) return true;
    if (!separator_) return false;
    ++counts_[*separator_];
    skip(std::exchange(separator_, nullptr)->size());
    while (bytes_->peek(1) == "\r" || bytes_->peek(1) == "\n") skip(1);
    at_line_start_ = true;
    return !bytes_->peek(1).empty();
  }
  size_t read(char* to, size_t size) override {
    if (separator_) return 0;
    const size_t count = longest_ == 0 ? bytes_->read(to, size) : read_to_separator(to, size);
    position_ += count;
    if (line_end_ == '\r') std::replace(to, to + count, '\r', '\n');
    return count;
  }
  uint64_t position() const override { return position_; }
  const std::map<std::string, int64_t>& separators() const override { return counts_; }

 private:
  void skip(size_t count) {
    bytes_->take(count);
    position_ += count;
  }

  size_t read_to_separator(char* to, size_t size) {
    const std::string_view ahead = bytes_->peek(size + longest_ + 2);  // with its line end
    size_t count = std::min(size, ahead.size());
    for (const std::string& separator : separators_) {
      const size_t at = separator_in(ahead, separator, count);
      if (at < count) count = at;
      if (at == 0) separator_ = &separator;
    }
    if (count == 0) return 0;
    std::memcpy(to, ahead.data(), count);
    at_line_start_ = ahead[count - 1] == line_end_;
    bytes_->take(count);
    return count;
  }

  // Where in the first `count` bytes a line begins that is this separator; npos where none does.
  size_t separator_in(std::string_view ahead, const std::string& separator, size_t count) const {
    for (size_t at = ahead.find(separator); at < count; at = ahead.find(separator, at + 1)) {
      const std::string_view rest = ahead.substr(at + separator.size());
      const bool begins_line = at == 0 ? at_line_start_ : ahead[at - 1] == line_end_;
      if (begins_line && (rest.empty() || rest[0] == line_end_ || rest.starts_with("\r\n"))) return at;
    }
    return std::string_view::npos;
  }

  const std::unique_ptr<Lookahead> bytes_;
  const std::vector<std::string>& separators_;
  const char line_end_;
  size_t longest_ = 0;
  uint64_t position_ = 0;
  bool begun_ = false, at_line_start_ = true;
  const std::string* separator_ = nullptr;  // the one that comes next
  std::map<std::string, int64_t> counts_;
};

// Records of the WARC format (ISO 28500): a version, headers, an empty line, Content-Length bytes, two line ends.
class WetRecords final : public DocumentStream {
 public:
  WetRecords(std::string name, std::unique_ptr<Lookahead> bytes) : name_(std::move(name)), bytes_(std::move(bytes)) {}

  bool next_document() override {
    for (;;) {
      if (bytes_->peek(1).empty()) return false;
      ++record_;
      if (read_headers()) {
        ++texts_;
        return true;
      }
      char skipped[4096];
      while (read(skipped, sizeof skipped) > 0) {}
    }
  }

  size_t read(char* to, size_t size) override {
    if (left_ == 0) {
      if (!std::exchange(at_end_, true)) end_record();
      return 0;
    }
    const size_t count = bytes_->read(to, std::min<uint64_t>(size, left_));
    if (count == 0)
      fail_record(fmt::format("the file ends {} bytes before the record does; copy or download it again", left_));
    left_ -= count;
    return count;
  }
  uint64_t position() const override { return texts_; }
  const std::map<std::string, int64_t>& separators() const override { return no_separators_; }

 private:
  [[noreturn]] void fail_record(const std::string& why) const {
    throw UnreadableSource(fmt::format("{}: record {}", name_, record_), why);
  }

  // True for a record of text.
  bool read_headers() {
    const std::string_view version = line();
    if (!version.starts_with("WARC/"))
      fail_record(fmt::format("it does not begin with WARC/1.0 or WARC/1.1; is this a .wet file?"));
    std::optional<uint64_t> length;
    bool is_text = false;
    for (std::string_view header = line(); !header.empty(); header = line()) {
      const size_t colon = header.find(':');
      if (colon == std::string_view::npos) fail_record("a header has no colon");
      const std::string_view key = header.substr(0, colon);
      std::string_view value = header.substr(colon + 1);
      value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
      if (is(key, "Content-Length")) length = number(value);
      if (is(key, "WARC-Type")) is_text = value == "conversion";
    }
    if (!length) fail_record("it has no Content-Length");
    left_ = *length;
    at_end_ = false;
    return is_text && left_ > 0;
  }

  static bool is(std::string_view key, std::string_view name) {
    return key.size() == name.size() && strncasecmp(key.data(), name.data(), name.size()) == 0;
  }

  uint64_t number(std::string_view text) const {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      fail_record("its Content-Length is not a number of bytes");
    }
    return value;
  }

  // Without its line end; it lives until the next one.
  std::string_view line() {
    constexpr size_t kLongest = 1 << 20;
    for (size_t size = 1 << 10; size <= kLongest; size *= 2) {
      const std::string_view ahead = bytes_->peek(size);
      const size_t end = ahead.find("\r\n");
      if (end != std::string_view::npos) {
        line_ = ahead.substr(0, end);
        bytes_->take(end + 2);
        return line_;
      }
      if (ahead.size() < size) fail_record("the file ends within its headers; copy or download it again");
    }
    fail_record("a header is longer than 1 MB");
  }

  void end_record() {
    if (bytes_->peek(4) != "\r\n\r\n") fail_record("its Content-Length is wrong: no record ends there");
    bytes_->take(4);
  }

  const std::string name_;
  const std::unique_ptr<Lookahead> bytes_;
  std::string line_;
  const std::map<std::string, int64_t> no_separators_;
  uint64_t record_ = 0, texts_ = 0, left_ = 0;
  bool at_end_ = true;
};

}  // namespace

std::unique_ptr<DocumentStream> open_documents(const Source& source, Content content,
                                               const std::vector<std::string>& separators) {
  if (content.kind == TextKind::wet) return std::make_unique<WetRecords>(source.name, std::move(content.bytes));
  return std::make_unique<PlainText>(std::move(content), separators);
}

}  // namespace gpt::prepare
