// Documents from files of every kind, gathered into chunks of work; what is in memory is bounded whatever their size.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "byte_stream.h"
#include "chunk.h"
#include "document_stream.h"
#include "gpt/chat/conversation_lines.h"
#include "repeated_documents.h"
#include "source_list.h"

namespace gpt::prepare {

// In text files CRLF becomes LF, and so does CR where there is no LF; a byte-order mark at the start is dropped. A file that cannot be read is an error where
// it was named, and passed over where it was found in a folder.
class DocumentReader {
 public:
  struct Options {
    std::function<size_t(std::string_view)> last_cut;  // where a long document may be cut; 0 = nowhere
    std::string text_field;                            // the field to read in .jsonl
    std::vector<std::string> separators = {};          // the lines that stand between documents in text files
    int64_t max_chars = 0;                             // the text ends after so many characters; 0 = never
    std::function<void()> waiting = {};                // called while a pipe has nothing; may throw
    const RepeatedDocuments* repeated = nullptr;       // documents to leave out; null = none
    // Every line is a conversation of this shape, and what is no JSON lines is no part of the input.
    std::optional<chat::ConversationShape> conversations = {};
  };

  DocumentReader(std::vector<Source> sources, Options options);

  // Nothing at the end. The chunks do not depend on how the input arrives. Throws gpt::Error(data).
  std::optional<Chunk> next();

  // Raw lines become documents, and repeated documents are left out. Throws gpt::Error(data) for a line without a text, or passes its
  // file over. May be called on several threads.
  Chunk parsed(Chunk chunk);

  // The file cannot be used because of its text at `offset` of the chunk. Throws gpt::Error(data), beginning with that place,
  // or passes the file over. May be called on several threads.
  void refuse(const Chunk& chunk, size_t offset, const std::string& why);

  // "FILE: byte 17", "FILE: line 3: byte 5", "FILE: line 3" of conversations or "FILE: document 2": where `offset` of the chunk's text is in the input.
  std::string place(const Chunk& chunk, size_t offset) const;

  uint64_t consumed() const { return consumed_; }  // bytes on the disk; may be called on any thread

  // For when the reading is over.
  struct Fault {
    std::string why;  // the whole message
    bool handed_out =
        false;  // parts of the file are in chunks that next() gave: what was made of them is worth nothing
    uint64_t position = 0;
  };
  const std::map<uint32_t, Fault>& faults() const { return faults_; }  // the sources that were passed over, by index
  std::vector<Source> used() const;
  int64_t crlf_files() const { return crlf_files_; }
  int64_t json_files() const { return std::count(kinds_.begin(), kinds_.end(), TextKind::json_lines); }
  int64_t cr_files() const { return cr_files_; }
  int64_t byte_order_mark_files() const { return byte_order_mark_files_; }
  std::map<std::string, int64_t> separators() const;  // the lines that stood between documents, each with its number
  int64_t replaced_characters() const { return replaced_characters_; }  // in JSON lines: characters that are no Unicode
  const std::vector<std::string>& disagreements() const {
    return disagreements_;
  }  // files that hold what their names do not say
  const std::vector<Markup>& markups() const { return markups_; }  // files with more in them than their text

 private:
  std::optional<Chunk> next_chunk();
  std::optional<Chunk> step();
  bool open_next_source();
  void close_source();
  void pass_over(const UnreadableSource& error);
  std::optional<Chunk> next_lines();
  bool read_document();
  bool read_block(size_t size);
  void join_line_ends(size_t begin);
  std::optional<Chunk> split_long_document();
  void end_part(size_t end, bool last);
  Chunk take(size_t end);
  Chunk with_documents(Chunk chunk);
  Chunk without_repeated(Chunk chunk) const;
  void apply_limit(Chunk& chunk);
  void add_fault(uint32_t source, Fault fault);
  uint32_t source() const { return static_cast<uint32_t>(next_source_ - 1); }

  const std::vector<Source> sources_;
  const Options options_;
  std::atomic<uint64_t> consumed_ = 0;
  std::vector<bool> is_used_;
  std::vector<TextKind> kinds_;  // kinds of the content, once a source is open
  std::vector<std::string> disagreements_;
  std::vector<Markup> markups_;
  int64_t crlf_files_ = 0, cr_files_ = 0, byte_order_mark_files_ = 0;
  std::map<std::string, int64_t> separators_;  // of the sources before the open one
  std::atomic<int64_t> replaced_characters_ = 0;
  std::mutex faults_mutex_;
  std::map<uint32_t, Fault> faults_;

  size_t next_source_ = 0;
  std::unique_ptr<DocumentStream> documents_;                  // the documents of the open source, or
  std::unique_ptr<ByteStream> lines_;                          // its lines, where it is .jsonl
  uint64_t position_ = 0;                                      // position of the next part
  uint64_t document_ = 0;                                      // position of the open document
  bool handed_out_ = false;                                    // parts of the open source are in chunks that were given
  bool has_crlf_ = false, has_cr_ = false, has_mark_ = false;  // the open source
  bool held_back_ = false;                                     // a CR, until it is known whether a LF follows

  Chunk chunk_;           // the chunk that is being filled
  bool reading_ = false;  // a document, whose text so far is the chunk's from begin_ on
  bool first_part_ = true;
  size_t begin_ = 0, limit_ = 0;  // it is cut when it is this long
  uint64_t key_ = 0;

  int64_t characters_ = 0;
  bool finished_ = false;  // max_chars has been reached
};

}  // namespace gpt::prepare
