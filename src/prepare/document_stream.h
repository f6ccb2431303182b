// The documents of one file of text or of Common Crawl's records, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "content.h"
#include "source_list.h"

namespace gpt::prepare {

class DocumentStream {
 public:
  virtual ~DocumentStream() = default;
  // Goes to the next document, the one before read to its end. False where there is none.
  virtual bool next_document() = 0;
  // At most `size` > 0 bytes of the document; 0 at its end.
  virtual size_t read(char* to, size_t size) = 0;
  // Where the document begins, asked before any of it is read: its byte in a text file, its number among records.
  virtual uint64_t position() const = 0;
  // The lines so far that stood between documents, each with its number.
  virtual const std::map<std::string, int64_t>& separators() const = 0;
};

// The documents of plain text, between lines that are one of `separators`, or of records. The stream throws UnreadableSource where it
// holds no such records.
std::unique_ptr<DocumentStream> open_documents(const Source& source, Content content,
                                               const std::vector<std::string>& separators);

}  // namespace gpt::prepare
