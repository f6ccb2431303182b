// Which parameters stay as they are while a model is trained.
#pragma once

#include <string>
#include <vector>

#include "gpt/layout/parameter_table.h"

namespace gpt {

// The table of a run that trains all parameters but those that a pattern names. A pattern is a parameter's name, or the beginning of one
// up to a dot, where "transformer." may be left out; "*" stands for any part and "2-5" for these numbers: "wte", "h.0-5", "h.*.attn",
// "h.*.mlp.*.bias". A tied head and its embedding are one. Throws gpt::Error(config) where a pattern names nothing, or nothing is left to be
// trained.
std::vector<ParameterRow> parameter_table(const ModelConfig& config, const std::vector<std::string>& frozen);

// The same of a configuration whose vocabulary may not be known yet.
void require_freezable(ModelConfig config, const std::vector<std::string>& frozen);

}  // namespace gpt
