// What prepare() is told, and what it tells while it works.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/data_config.h"
#include "gpt/tokenizer/text_format.h"

namespace gpt::prepare {

enum class BinFormat {
  prepared,  // kBinFile, kTokenizerFile and kMetadataFile, and for conversations kMarksFile
  nanogpt,   // train.bin and val.bin, raw uint16, and the tokenizer's file
  llmc,      // the same with llm.c's header
};

// Which documents are left out because an earlier one is the same.
enum class Deduplicate {
  none,
  exact,  // every byte is
  near,   // so are kNearThreshold of the runs of five words that either has (their Jaccard similarity)
};
constexpr double kNearThreshold = 0.8;

constexpr const char* kAutomaticSeparator = "auto";

struct PrepareOptions {
  std::vector<std::string> inputs;  // files, folders, globs, or "-" for standard input
  std::string cache_dir = {};       // a folder of prepared texts, which are no input where it lies in one; empty = none
  std::string tokenizer = "gpt2";   // as make_tokenizer() takes it
  std::string saved_tokenizer = {};  // JSON of the tokenizer to use instead; empty = none
  std::string text_field = "text";   // the field to read in .jsonl
  // The text format of the model which is to learn conversations; without it a file of them is refused.
  std::optional<tokenizer::TextFormat> chat_format = {};
  std::vector<int32_t> document_prefix = {};  // ids that each document begins with, as TextFormat::prefix
  std::string chat_template = "auto";         // of conversations, as chat::lay_out_as() takes it
  Learn learn = Learn::answers;               // of conversations
  bool trust_markup = false;                  // special tokens that are spelled out in messages are those tokens
  // The line that ends a document in a text file, and is no part of it; none: there is no such line; auto: <|endoftext|> and the
  // tokenizer's own end of text.
  std::string document_separator = kAutomaticSeparator;
  double validation_fraction = 0.1;  // share of the documents; of the tokens, from the end, where documents are too few
  bool parse_special_tokens = false;  // otherwise their text is ordinary text
  int64_t min_frequency = 2;          // the fewest occurrences of a pair that bpe:N merges
  int64_t max_chars = 0;              // read at most this many characters; 0 = all
  Deduplicate deduplicate = Deduplicate::none;
  uint64_t seed = 0;  // keys the choice of validation documents
  BinFormat format = BinFormat::prepared;
  int64_t threads = 0;  // 0 = all cores
  bool force = false;   // replace files that another program may have made
};

struct PrepareProgress {
  const char* stage;     // "reading", "training the tokenizer", "encoding"
  uint64_t done, total;  // total 0 = not known
  bool in_bytes = true;  // `done` and `total` are bytes of input, as they lie on the disk; otherwise merges
};

}  // namespace gpt::prepare
