// The documents of one file of text or of Common Crawl's records, one after the other.
#pragma once

#include <cstddef>
#include <memory>

#include "content.h"
#include "source_list.h"

namespace gpt {

class DocumentStream {
 public:
  virtual ~DocumentStream() = default;
  // Goes to the next document, the one before read to its end. False where there is none.
  virtual bool next_document() = 0;
  // At most `size` > 0 bytes of the document; 0 at its end.
  virtual size_t read(char* to, size_t size) = 0;
};

// The documents of plain text or of records. The stream throws UnreadableSource where it holds no such records.
std::unique_ptr<DocumentStream> open_documents(const Source& source, Content content);

}  // namespace gpt
