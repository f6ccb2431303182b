// Which parts of a model stay: the most important ones.
#pragma once

#include <cstdint>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/prune/amounts.h"
#include "gpt/prune/importance.h"

namespace gpt::prune {

struct KeptLayer {
  int64_t layer;                                  // which one it was
  std::vector<int64_t> neurons, heads, kv_heads;  // those that it was made of, ascending
};

// The layers that stay, in their order, each with as many neurons and heads as the others. Of grouped heads whole groups go, those that
// do least together, where that many heads are whole groups, otherwise the least important ones of each group.
std::vector<KeptLayer> most_important(const Importance& importance, const Removal& removal, const ModelConfig& model);

}  // namespace gpt::prune
