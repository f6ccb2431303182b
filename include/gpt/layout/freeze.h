// Which parameters stay as they are while a model is trained.
#pragma once

#include <string>
#include <vector>

#include "gpt/layout/parameter_table.h"

namespace gpt {

// The rows that a pattern names are not trained. A pattern is a parameter's name, or the beginning of one up to a dot, where "transformer."
// may be left out; "*" stands for any part and "2-5" for these numbers: "wte", "h.0-5", "h.*.attn", "h.*.mlp.*.bias". A tied head and its
// embedding are one. Throws gpt::Error(config) where a pattern names nothing, or nothing is left to be trained.
void freeze(std::vector<ParameterRow>& rows, const std::vector<std::string>& patterns);

// The same for a configuration whose vocabulary may not be known yet.
void require_freezable(ModelConfig config, const std::vector<std::string>& patterns);

}  // namespace gpt
