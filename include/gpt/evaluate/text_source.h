// The windows of documents, which are found and encoded as for training: a line that is the end-of-text token's name separates them, and
// within lines the text of a special token is ordinary text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpt/evaluate/example.h"

namespace gpt::evaluate {

// `inputs` and `text_field` as PrepareOptions has them. Throws gpt::Error(data) for what cannot be read or has no text.
std::unique_ptr<ExampleSource> open_text(const std::vector<std::string>& inputs, const std::string& text_field,
                                         const Encoding& encoding, int64_t stride);

}  // namespace gpt::evaluate
