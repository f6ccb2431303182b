#include "conversation_input.h"

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <string_view>

#include "byte_stream.h"
#include "content.h"
#include "gpt/core/error.h"
#include "gpt/prepare/plain_text.h"
#include "json_lines.h"

namespace gpt::prepare {
namespace {

// The first line that is not empty.
std::string first_line(ByteStream& bytes) {
  constexpr size_t kStep = 1 << 16, kMost = 1 << 27;
  std::string text;
  for (bool more = true; more && text.size() < kMost;) {
    const size_t before = text.size();
    text.resize(before + kStep);
    const size_t count = bytes.read(text.data() + before, kStep);
    text.resize(before + count);
    more = count > 0;
    if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
    const size_t begin = text.find_first_not_of(" \t\r\n");
    const size_t end = begin == std::string::npos ? begin : text.find('\n', begin);
    if (end != std::string::npos || (!more && begin != std::string::npos)) return text.substr(begin, end - begin);
  }
  return "";
}

}  // namespace

std::optional<chat::ConversationShape> conversations_in(const std::vector<Source>& sources,
                                                        const std::string& text_field) {
  const auto is_called_so = [](const Source& source) { return source.kind == TextKind::json_lines; };
  auto source = std::find_if(sources.begin(), sources.end(), is_called_so);
  if (source == sources.end()) source = sources.begin();
  if (source == sources.end() || source->stream) return std::nullopt;
  try {
    std::atomic<uint64_t> consumed = 0;
    const Content content = open_content(*source, open_file(*source, consumed, [] {}));
    if (content.kind != TextKind::json_lines) return std::nullopt;
    int64_t replaced = 0;
    return chat::shape_of(parse_leniently(first_line(*content.bytes), replaced), text_field);
  } catch (const Error&) {  // reading it says what is wrong
    return std::nullopt;
  }
}

}  // namespace gpt::prepare
