#include "gpt/generate/text_stream.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "gpt/core/utf8.h"

namespace gpt::generate {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Length of the longest end of `text` that begins one of `stop`: it cannot be shown before more is known.
size_t held_back(std::string_view text, const std::vector<std::string>& stop) {
  size_t held = 0;
  for (const std::string& s : stop) {
    for (size_t n = std::min(s.size() - 1, text.size()); n > held; --n) {
      if (text.ends_with(std::string_view(s).substr(0, n))) held = n;
    }
  }
  return held;
}

}  // namespace

std::string TextStream::push(std::string_view bytes) {
  if (stopped_) return "";
  bytes_ += bytes;
  size_t i = 0;
  while (i < bytes_.size()) {
    const utf8::Scan next = utf8::scan(bytes_, i);
    if (next.kind == utf8::Scan::unfinished) break;
    text_ += next.kind == utf8::Scan::whole ? std::string_view(bytes_).substr(i, next.bytes) : kReplacement;
    i += next.bytes;
  }
  bytes_.erase(0, i);
  return release();
}

std::string TextStream::finish() {
  if (!std::exchange(bytes_, "").empty() && !stopped_) text_ += kReplacement;
  return std::exchange(text_, "");
}

std::string TextStream::release() {
  // The first stop text to be complete counts, the longer one of two that end together: that is what character by
  // character would have found.
  size_t begin = std::string::npos, end = std::string::npos;
  for (const std::string& s : stop_) {
    const size_t at = text_.find(s);
    if (at == std::string::npos) continue;
    if (at + s.size() < end || (at + s.size() == end && at < begin)) begin = at, end = at + s.size();
  }
  stopped_ = begin != std::string::npos;
  const size_t ready = stopped_ ? begin : text_.size() - held_back(text_, stop_);
  std::string result = text_.substr(0, ready);
  text_.erase(0, stopped_ ? text_.size() : ready);
  return result;
}

}  // namespace gpt::generate
