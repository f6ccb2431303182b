// The documents of one file of text or of Common Crawl's records, one behind the other.
#pragma once

#include <cstddef>
#include <memory>

#include "byte_stream.h"
#include "source_list.h"

namespace gpt {

class DocumentStream {
 public:
  virtual ~DocumentStream() = default;
  // Goes to the next document, the one before read to its end. False where there is none. Throws gpt::Error(data).
  virtual bool next_document() = 0;
  // At most `size` > 0 bytes of the document; 0 at its end.
  virtual size_t read(char* to, size_t size) = 0;
};

// Null where a file that was found in a folder is empty or no text; one that the user named is then refused.
std::unique_ptr<DocumentStream> open_documents(const Source& source, std::unique_ptr<ByteStream> bytes);

}  // namespace gpt
