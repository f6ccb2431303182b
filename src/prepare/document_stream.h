// The documents of one file of text or of Common Crawl's records, one after the other.
#pragma once

#include <cstddef>
#include <memory>

#include "byte_stream.h"
#include "source_list.h"

namespace gpt {

class DocumentStream {
 public:
  virtual ~DocumentStream() = default;
  // Goes to the next document, the one before read to its end. False where there is none.
  virtual bool next_document() = 0;
  // At most `size` > 0 bytes of the document; 0 at its end.
  virtual size_t read(char* to, size_t size) = 0;
  // The file began with these many bytes of a byte-order mark, which is no text.
  virtual size_t byte_order_mark() const { return 0; }
};

// Throws UnreadableSource, as the stream does: the file is empty, no text, or no records.
std::unique_ptr<DocumentStream> open_documents(const Source& source, std::unique_ptr<ByteStream> bytes);

}  // namespace gpt
