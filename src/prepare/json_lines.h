// One text field of each line of a .jsonl file, or the conversation that it is.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "chunk.h"
#include "gpt/chat/conversation_lines.h"
#include "gpt/core/error.h"

namespace gpt::prepare {

// No JSON object, no such field, no string in it. The message begins with "NAME: line N".
class BadJsonLine : public Error {
 public:
  BadJsonLine(const std::string& message, uint64_t line) : Error(ExitCode::data, message), line_(line) {}
  uint64_t line() const { return line_; }

 private:
  uint64_t line_;
};

// Whether it is JSON, or what Python's json writes beyond it.
bool is_json(std::string_view text);

// Such a text; `replaced` grows by the characters that are no Unicode. Throws gpt::Error(data) with the byte.
nlohmann::json parse_leniently(std::string_view line, int64_t& replaced);

struct JsonDocuments {
  Chunk chunk;
  int64_t replaced_characters = 0;  // by U+FFFD, because they are no Unicode: lone surrogates, invalid UTF-8
};

// `lines` are whole lines, the first of them at `first`'s source and position. Empty lines, empty texts and null are no
// documents. Python's json may write NaN, Infinity and lone surrogates, which JSON does not have: they are read. With `shape` every line
// is a conversation of it, and a document is what chat::as_json() writes. Throws BadJsonLine.
JsonDocuments parse_json_lines(std::string_view lines, const std::string& field, const DocumentPart& first,
                               const std::string& name, std::optional<chat::ConversationShape> shape = {});

}  // namespace gpt::prepare
