#include "gpt/http/chunked_body.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "gpt/http/request.h"

namespace gpt::http {
namespace {

constexpr std::string_view kEndOfLine = "\r\n";
constexpr size_t kLongestSizeLine = 256;  // with its extensions, which nobody here knows

}  // namespace

bool ChunkedBody::take(std::string& received) {
  std::string_view rest = received;
  while (next_ != Next::nothing && take_part(rest)) {}
  received.erase(0, received.size() - rest.size());
  return next_ == Next::nothing;
}

// False where more must come first.
bool ChunkedBody::take_part(std::string_view& rest) {
  if (next_ == Next::data) return take_data(rest);
  const size_t longest = next_ == Next::size ? kLongestSizeLine : next_ == Next::data_end ? 0 : most_trailer_bytes_;
  const size_t end = rest.substr(0, longest + kEndOfLine.size()).find(kEndOfLine);
  if (end == std::string_view::npos) {
    if (rest.size() < longest + kEndOfLine.size()) return false;
    if (next_ == Next::trailer) throw Refusal(431, "the headers behind the chunks are too long");
    throw Refusal(400,
                  next_ == Next::size ? "the line with a chunk's size is too long" : "a chunk is longer than its size");
  }
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + kEndOfLine.size());
  if (next_ == Next::size) {
    read_size(line);
  } else if (next_ == Next::trailer) {
    read_trailer(line);
  } else {
    next_ = Next::size;
  }
  return true;
}

bool ChunkedBody::take_data(std::string_view& rest) {
  const std::string_view data = rest.substr(0, left_);
  text_ += data;
  left_ -= data.size();
  rest.remove_prefix(data.size());
  if (left_ > 0) return false;
  next_ = Next::data_end;
  return true;
}

// SIZE in hexadecimal digits, or SIZE;EXTENSION.
void ChunkedBody::read_size(std::string_view line) {
  const std::string_view digits = line.substr(0, line.find_first_of("; \t"));
  const auto is_visible = [](char c) { return c == '\t' || (static_cast<unsigned char>(c) >= ' ' && c != 0x7F); };
  const char* const end = digits.data() + digits.size();
  const auto [parsed, error] = std::from_chars(digits.data(), end, left_, 16);
  const size_t more = line.find_first_not_of(" \t", digits.size());
  const bool is_size = parsed == end && !digits.empty() && error != std::errc::invalid_argument &&
                       (digits.size() == line.size() || (more != std::string_view::npos && line[more] == ';'));
  if (!is_size || !std::all_of(line.begin(), line.end(), is_visible))
    throw Refusal(400, "a chunk does not begin with its size in hexadecimal digits");
  if (error == std::errc::result_out_of_range || left_ > most_bytes_ - text_.size()) throw body_too_long(most_bytes_);
  next_ = left_ > 0 ? Next::data : Next::trailer;
}

void ChunkedBody::read_trailer(std::string_view line) {
  if (line.empty()) {
    next_ = Next::nothing;
  } else {
    parse_header(line);
    most_trailer_bytes_ -= line.size();
  }
}

}  // namespace gpt::http
