// Text that was prepared once and is kept, so that a second run on it starts at once.
#pragma once

#include <string>

#include "gpt/config/data_config.h"

namespace gpt {

// The folder with tokens_bpe.bin and its metadata for `input` (a file, folder or glob), which is prepared on the first
// call. What it was made from rules the name of the folder: the contents of the files, the tokenizer and the settings.
// `saved_tokenizer`: JSON of the tokenizer to use; empty = what config.tokenizer says.
// Throws gpt::Error: what prepare() throws; disk, naming data.cache_dir, where nothing can be kept.
std::string prepared_text(const std::string& input, const DataConfig& config, const std::string& saved_tokenizer);

}  // namespace gpt
