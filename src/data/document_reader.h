// Documents from files of every kind, gathered into chunks of work; what is in memory is bounded whatever their size.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "byte_stream.h"
#include "document_stream.h"
#include "source_list.h"

namespace gpt {

// A document, or a part of one that is longer than a chunk.
struct DocumentPart {
  size_t end = 0;  // in the chunk's text, where the next one begins
  uint32_t source = 0;
  uint64_t position = 0;           // byte of a text file where the part begins, line of .jsonl, record of .wet
  bool first = true, last = true;  // of its document
  uint64_t key = 0;                // hash of the document's beginning: documents that are alike have the same
};

// The work of one thread at a time.
struct Chunk {
  std::string text;
  std::vector<DocumentPart> parts;
  bool raw_lines = false;  // whole lines of .jsonl, the first of them at the one part's source and position
};

// The hash of a document's beginning: of all of it, unless it is long.
uint64_t document_key(std::string_view text);

class DocumentReader {
 public:
  struct Options {
    std::function<size_t(std::string_view)> last_cut;  // where a long document may be cut; 0 = nowhere
    std::string text_field;                            // of .jsonl
    int64_t max_chars = 0;                             // the text ends behind so many characters; 0 = never
    std::function<void()> waiting;                     // called while a pipe has nothing; may throw
  };

  DocumentReader(std::vector<Source> sources, Options options);

  // Nothing at the end. The chunks do not depend on how the input arrives. Throws gpt::Error(data).
  std::optional<Chunk> next();

  // Raw lines become documents, any other chunk stays as it is. May be called on several threads.
  Chunk parsed(Chunk chunk) const;

  // "FILE: line 3" or "FILE: byte 17": what messages about a part, or a byte of it, begin with.
  std::string place(const DocumentPart& part) const;
  std::string place(const DocumentPart& part, size_t offset) const;

  uint64_t consumed() const { return consumed_; }  // bytes on the disk; may be called on any thread
  std::vector<Source> used() const;                // so far
  const std::vector<std::string>& skipped() const { return skipped_; }  // found, but no text

 private:
  bool open_next_source();
  std::optional<Chunk> next_chunk();
  std::optional<Chunk> next_lines();
  bool read_document();
  std::optional<Chunk> split_long_document();
  void end_part(size_t end, bool last);
  Chunk take(size_t end);
  void apply_limit(Chunk& chunk);

  const std::vector<Source> sources_;
  const Options options_;
  std::atomic<uint64_t> consumed_ = 0;
  std::vector<std::string> skipped_;
  std::vector<bool> is_used_;

  size_t next_source_ = 0;
  std::unique_ptr<DocumentStream> documents_;  // of the open source, or
  std::unique_ptr<ByteStream> lines_;          // where it is .jsonl
  uint64_t position_ = 0;                      // of the next part

  Chunk chunk_;            // that is being filled
  bool reading_ = false;   // a document, whose text so far is the chunk's from begin_ on
  bool first_part_ = true;
  size_t begin_ = 0, limit_ = 0;  // it is cut when it is this long
  uint64_t key_ = 0;

  int64_t characters_ = 0;
  bool finished_ = false;  // max_chars has been reached
};

}  // namespace gpt
