// What a file holds: its content and its name decide together.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "lookahead.h"
#include "source_list.h"

namespace gpt::prepare {

struct Content {
  TextKind kind;
  Packing packing;
  std::unique_ptr<Lookahead> bytes;  // unpacked, from the first one on
  size_t byte_order_mark = 0;        // the text begins with these many bytes of it
  bool has_cr_lines = false;         // plain text whose lines end with CR alone
};

// `file`: as it lies on the disk. What it is packed with shows in its first bytes, whatever it is called, and so do JSON lines
// and Common Crawl's records. Throws UnreadableSource for what is no text, saying what it is instead.
Content open_content(const Source& source, std::unique_ptr<ByteStream> file);

// "a.txt is packed with gzip, and holds JSON lines": where that is not what its name says; otherwise empty.
std::string disagreement(const Source& source, const Content& content);

// A file of text that has more in it than its text, which would be learned too.
struct Markup {
  std::string file;
  const char* what;    // "is HTML, and its tags are learned as text"
  std::string remedy;  // a command
};
std::optional<Markup> markup_of(const Source& source, const Content& content);

// "text", "JSON lines in gzip"
std::string describe(TextKind kind, Packing packing);

}  // namespace gpt::prepare
