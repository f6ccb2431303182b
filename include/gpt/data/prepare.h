// From a folder of text to token ids: what gpt-prepare does, and gpt-train for data.text. All cores, bounded memory
// whatever the size of the input, and an output folder that has all of its old files or all of the new ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpt/data/metadata.h"

namespace gpt {

constexpr const char* kBinFile = "tokens_bpe.bin";  // training, then validation
constexpr const char* kTokenizerFile = "bpe_tokenizer.json";
constexpr const char* kMetadataFile = "tokens_bpe_metadata.json";

enum class BinFormat {
  prepared,  // the three files above
  nanogpt,   // train.bin and val.bin, raw uint16, and the tokenizer's file
  llmc,      // the same with llm.c's header
};

struct PrepareOptions {
  std::vector<std::string> inputs;    // files, folders, globs, or "-" for standard input
  std::string tokenizer = "gpt2";     // as make_tokenizer() takes it
  std::string saved_tokenizer = {};   // JSON of the tokenizer to use instead; empty = none
  std::string text_field = "text";    // of .jsonl
  double validation_fraction = 0.1;   // of the documents; of the tokens, from the end, where there are too few documents
  bool parse_special_tokens = false;  // otherwise their text is ordinary text
  int64_t min_frequency = 2;          // of a pair that bpe:N merges
  int64_t max_chars = 0;              // read at most this many characters; 0 = all
  uint64_t seed = 0;                  // keys the choice of validation documents
  BinFormat format = BinFormat::prepared;
  int64_t threads = 0;                // 0 = all cores
  bool force = false;                 // replace files that another program may have made
};

struct PrepareProgress {
  const char* stage;      // "reading", "training the tokenizer", "encoding"
  uint64_t done, total;   // total 0 = not known
  bool in_bytes = true;   // of input, as they lie on the disk; otherwise merges
};

// Writes the files into `output_dir`; a former output of the same kind is replaced. Every document ends with the tokenizer's
// end-of-text where it has one. Empty documents are none. `progress` is called now and then, and may return false: then
// nothing of the new output is left, and the call throws gpt::Error(interrupted).
// Throws gpt::Error: data for input that cannot be read (file, line or byte, why), disk for a full one, config for options
// that contradict each other, files of other programs in the way or another process that writes into the folder.
Metadata prepare(const PrepareOptions& options, const std::string& output_dir,
                 const std::function<bool(const PrepareProgress&)>& progress = {});

}  // namespace gpt
