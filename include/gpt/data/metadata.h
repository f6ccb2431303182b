// What lies beside a bin of token ids: tokens_bpe_metadata.json. Written by gpt-prepare, read by everything that opens the bin.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::data {

// The files of a folder that gpt-prepare wrote.
constexpr const char* kBinFile = "tokens_bpe.bin";  // training, then validation
constexpr const char* kMarksFile =
    "tokens_bpe_marks.bin";  // of conversations: a byte for each token, as TokenMark has them
constexpr const char* kTokenizerFile = "bpe_tokenizer.json";
constexpr const char* kMetadataFile = "tokens_bpe_metadata.json";

// One of the two parts of the data.
struct SplitCounts {
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t bytes =
      0;  // bytes of text: with the tokens, what bits per byte need; 0 = not known. Of conversations, of what is learned
  int64_t learned = 0;  // tokens of conversations that are learned
  bool operator==(const SplitCounts&) const = default;
};

struct SourceFile {
  std::string path;
  int64_t bytes = 0;
  bool operator==(const SourceFile&) const = default;
};

struct ConversationCounts {
  std::string shape;          // the field of a line by which they were known: "messages"; empty: the bin is of texts
  std::string learn;          // "answers", "all" or "last"
  std::string chat_template;  // Jinja, in which they are laid out; empty: not known
  std::string marks_hash;     // XXH3-128 of kMarksFile
  int64_t turns = 0;          // messages but those of the system
  int64_t answers = 0;        // that are learned
  int64_t unanswered = 0;     // conversations that were left out, because no answer was in them
  int64_t last_answer_only =
      0;  // those whose last answer alone is learned, because the chat template rewrites earlier turns
  bool operator==(const ConversationCounts&) const = default;
  ConversationCounts& operator+=(const ConversationCounts& part);  // the counts alone
};

struct Metadata {
  int64_t vocab_size = 0;
  int width_bytes = 0;         // "dtype": 2 for "uint16", 4 for "uint32", little-endian; 0 = not known
  std::string tokenizer;       // its file, relative to the metadata's folder; empty = not known
  std::string tokenizer_hash;  // XXH3-128 of its to_json(), 32 hex digits; empty = not known
  std::string bin_hash;        // XXH3-128 of the bin; empty = not known
  // The bin holds the training tokens, then the validation tokens. Both zero: not known, split at load.
  SplitCounts train, validation;
  ConversationCounts conversations;
  std::string split;  // "documents" or "tokens": how the validation part was chosen
  int64_t invalid_utf8_bytes = 0;
  int64_t crlf_files = 0, byte_order_mark_files = 0;  // text files that were read without their CRs, without their mark
  int64_t json_files = 0;                             // files of JSON lines
  int64_t cr_files = 0;                               // text files whose CRs were line ends of their own: LF now
  std::map<std::string, int64_t> separators;          // lines that ended documents, and were left out: how many of each
  int64_t ends_as_text = 0;                           // texts of the end-of-text token that were read as ordinary text
  int64_t repeated_documents = 0;                     // documents that were left out
  int64_t replaced_characters = 0;                    // characters of JSON lines that were no Unicode: U+FFFD now
  std::vector<SourceFile> sources;
  std::vector<std::string> skipped;  // files of the input's folders that were passed over: no text, damaged
  bool operator==(const Metadata&) const = default;
};

// How many of `tokens` are for training where the last ones are kept for validation, as in nanoGPT's prepare.py.
int64_t training_tokens(int64_t tokens, double validation_fraction);

// Only vocab_size is needed. Throws gpt::Error(data) naming the key, what it is and what is needed.
Metadata read_metadata(const std::string& path);
Metadata parse_metadata(std::string_view json, const std::string& origin);
std::string to_json(const Metadata& metadata);

}  // namespace gpt::data
