#include "document_stream.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace gpt {
namespace {

// A stream of which the next bytes can be looked at.
class Lookahead {
 public:
  explicit Lookahead(std::unique_ptr<ByteStream> bytes) : bytes_(std::move(bytes)) {}

  // The next bytes, `size` of them unless the stream ends.
  std::string_view peek(size_t size) {
    while (buffer_.size() - begin_ < size) {
      buffer_.erase(0, std::exchange(begin_, 0));
      const size_t before = buffer_.size();
      buffer_.resize(before + kBlock);
      const size_t count = bytes_->read(buffer_.data() + before, kBlock);
      buffer_.resize(before + count);
      if (count == 0) break;
    }
    return std::string_view(buffer_).substr(begin_, size);
  }

  void take(size_t size) { begin_ += size; }

  size_t read(char* to, size_t size) {
    const size_t held = std::min(size, buffer_.size() - begin_);
    if (held == 0) return bytes_->read(to, size);
    std::memcpy(to, buffer_.data() + begin_, held);
    take(held);
    return held;
  }

 private:
  static constexpr size_t kBlock = 1 << 16;
  std::unique_ptr<ByteStream> bytes_;
  std::string buffer_;
  size_t begin_ = 0;
};

class PlainText final : public DocumentStream {
 public:
  PlainText(Lookahead bytes, size_t byte_order_mark) : bytes_(std::move(bytes)), byte_order_mark_(byte_order_mark) {
    bytes_.take(byte_order_mark);
  }
  bool next_document() override { return !std::exchange(begun_, true); }
  size_t read(char* to, size_t size) override { return bytes_.read(to, size); }
  size_t byte_order_mark() const override { return byte_order_mark_; }

 private:
  Lookahead bytes_;
  const size_t byte_order_mark_;
  bool begun_ = false;
};

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // of UTF-8

// Why a file that begins with these bytes is no text; empty where it is.
std::string why_no_text(std::string_view head) {
  using namespace std::string_view_literals;
  if (head.empty() || head == kByteOrderMark) return "it is empty";
  for (const auto& [mark, encoding] : {std::pair{"\xff\xfe\0\0"sv, "UTF-32"},
                                       {"\0\0\xfe\xff"sv, "UTF-32"},
                                       {"\xff\xfe"sv, "UTF-16"},
                                       {"\xfe\xff"sv, "UTF-16"}}) {
    if (head.starts_with(mark))
      return fmt::format("it looks like {0}; convert it to UTF-8 (iconv -f {0} -t UTF-8)", encoding);
  }
  const size_t nul = head.find('\0');
  if (nul == std::string_view::npos) return "";
  const char* what = "it is a binary file, not text";
  if (head.starts_with("\x1f\x8b")) what = "it is compressed with gzip, and its name has to end with .gz";
  if (head.starts_with("\x28\xb5\x2f\xfd")) what = "it is compressed with zstd, and its name has to end with .zst";
  return fmt::format("byte {} is NUL: {}", nul, what);
}

std::unique_ptr<DocumentStream> open_plain(const Source& source, Lookahead bytes) {
  constexpr size_t kHead = 1 << 16;  // text has no NUL there; after it one is data like any other byte
  const std::string_view head = bytes.peek(kHead);
  if (const std::string why = why_no_text(head); !why.empty()) throw UnreadableSource(source.name, why);
  const size_t mark = head.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  return std::make_unique<PlainText>(std::move(bytes), mark);
}

// Records of the WARC format (ISO 28500): a version, headers, an empty line, Content-Length bytes, two line ends.
class WetRecords final : public DocumentStream {
 public:
  WetRecords(std::string name, Lookahead bytes) : name_(std::move(name)), bytes_(std::move(bytes)) {}

  bool next_document() override {
    for (;;) {
      if (bytes_.peek(1).empty()) return false;
      ++record_;
      if (read_headers()) return true;
      char skipped[4096];
      while (read(skipped, sizeof skipped) > 0) {}
    }
  }

  size_t read(char* to, size_t size) override {
    if (left_ == 0) {
      if (!std::exchange(at_end_, true)) end_record();
      return 0;
    }
    const size_t count = bytes_.read(to, std::min<uint64_t>(size, left_));
    if (count == 0)
      fail_record(fmt::format("the file ends {} bytes before the record does; copy or download it again", left_));
    left_ -= count;
    return count;
  }

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
      const std::string_view ahead = bytes_.peek(size);
      const size_t end = ahead.find("\r\n");
      if (end != std::string_view::npos) {
        line_ = ahead.substr(0, end);
        bytes_.take(end + 2);
        return line_;
      }
      if (ahead.size() < size) fail_record("the file ends within its headers; copy or download it again");
    }
    fail_record("a header is longer than 1 MB");
  }

  void end_record() {
    if (bytes_.peek(4) != "\r\n\r\n") fail_record("its Content-Length is wrong: no record ends there");
    bytes_.take(4);
  }

  const std::string name_;
  Lookahead bytes_;
  std::string line_;
  uint64_t record_ = 0, left_ = 0;
  bool at_end_ = true;
};

}  // namespace

std::unique_ptr<DocumentStream> open_documents(const Source& source, std::unique_ptr<ByteStream> bytes) {
  if (source.kind == TextKind::wet) return std::make_unique<WetRecords>(source.name, Lookahead(std::move(bytes)));
  return open_plain(source, Lookahead(std::move(bytes)));
}

}  // namespace gpt
