// Samples from easy to hard by a measured score.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gpt/config/data_config.h"
#include "gpt/data/token_file.h"
#include "sample_order.h"

namespace gpt::data {

// The samples of epoch 0, lowest score first; equal scores keep the order of the text. The score is, for
//   shorter_first  the length in tokens of the document that the sample begins in
//   simpler_first  how far zlib, at its fastest level, compresses the sample's ids: size after over size before
// Memory is two numbers per sample. require_documents() has passed.
std::vector<int64_t> easiest_first(const Tokens& tokens, const SampleOrder& order, DataOrder by,
                                   std::optional<int32_t> end_of_text);

// Throws gpt::Error(config) for shorter_first without an end-of-text to tell documents by.
void require_documents(DataOrder by, std::optional<int32_t> end_of_text);

}  // namespace gpt::data
