// What passes between reading documents and working on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/core/hash.h"

namespace gpt::prepare {

// A document, or a part of one that is longer than a chunk.
struct DocumentPart {
  size_t end = 0;  // in the chunk's text, where the next one begins
  uint32_t source = 0;
  uint64_t position = 0;           // byte of a text file where the part begins, line of .jsonl, record of .wet
  uint64_t document = 0;           // the position of the document's first part
  bool first = true, last = true;  // the first and the last part of its document
  uint64_t key = 0;                // hash of the document's beginning: documents that are alike have the same
};

// The work of one thread at a time.
struct Chunk {
  std::string text;
  std::vector<DocumentPart> parts;
  std::vector<uint32_t> joined;  // where in the text a LF stands for a CRLF of the file
  bool raw_lines = false;        // whole lines of .jsonl, the first of them at the one part's source and position
};

// The hash of a document's beginning: of all of it, unless it is long.
inline uint64_t document_key(std::string_view text) { return hash64(text.substr(0, 1 << 16)); }

}  // namespace gpt::prepare
