// From a folder of text to token ids: what gpt-prepare does, and gpt-train for data.text. All cores, bounded memory
// whatever the size of the input, and an output folder that has all of its old files or all of the new ones.
#pragma once

#include <functional>
#include <string>

#include "gpt/data/metadata.h"
#include "gpt/prepare/prepare_options.h"

namespace gpt::prepare {

// Writes the files into `output_dir`; a former output of the same kind is replaced. Every document ends with the tokenizer's
// end-of-text where it has one. Empty documents are none. `progress` is called now and then, and may return false: then
// nothing of the new output is left, and the call throws gpt::Error(interrupted).
// Throws gpt::Error: data for input that cannot be read (file, line or byte, why), disk for a full one, config for options
// that contradict each other, files of other programs in the way or another process that writes into the folder.
data::Metadata prepare(const PrepareOptions& options, const std::string& output_dir,
                       const std::function<bool(const PrepareProgress&)>& progress = {});

}  // namespace gpt::prepare
