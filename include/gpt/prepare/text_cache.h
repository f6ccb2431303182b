// Text that was prepared once and is kept, so that a second run on it starts at once.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "gpt/config/data_config.h"
#include "gpt/data/bin.h"
#include "gpt/tokenizer/text_format.h"

namespace gpt::prepare {

// `input` (a file, folder or glob), prepared on the first call. What it was made from gives its folder a name: the contents
// of the files, the tokenizer and the settings. When a text has been added, those that were used least recently are removed
// until all have at most config.cache_limit.
// `saved_tokenizer`: JSON of the tokenizer to use; empty = what config.tokenizer says. `chat_format`: as PrepareOptions has it.
// `format`: of the model that is to learn the text, whose prefix each document gets.
// `open` opens the bin at a path, and throws gpt::Error(data) where it is damaged: then it is prepared anew, and opened again.
// While the bin's `in_use` lives, no process removes it.
// Throws gpt::Error: what prepare() throws; disk, naming data.cache_dir, where nothing can be kept; interrupted.
data::Bin prepared_text(const std::string& input, const DataConfig& config, const std::string& saved_tokenizer,
                        const std::optional<tokenizer::TextFormat>& chat_format,
                        const std::optional<tokenizer::TextFormat>& format,
                        const std::function<data::Bin(const std::string& path)>& open);

// Whether `input` is conversations. Throws gpt::Error(data) where it cannot be found.
bool holds_conversations(const std::string& input, const DataConfig& config);

// What config.cache_dir should be: what it is; or where it says nothing and the user's cache cannot be written, `instead`, as a line says.
std::string usable_cache(const DataConfig& config, const std::string& instead);

// The texts in config.cache_dir, for people or as JSON: path, size, when each was used last and what it was made from.
std::string describe_text_cache(const DataConfig& config, bool json);

// Removes them all but those that are in use; says in one line what it did.
std::string clear_text_cache(const DataConfig& config);

}  // namespace gpt::prepare
