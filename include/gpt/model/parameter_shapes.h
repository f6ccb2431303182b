// Which parameters a configuration has: the one list of names and shapes, in state-dict order. It allocates nothing, so
// that a model and its cost can be described before it is built.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/model_config.h"

namespace gpt {

struct ParameterShape {
  std::string name;
  std::vector<int64_t> shape;
  int64_t count() const;
};

// `config.vocab_size` must be set.
std::vector<ParameterShape> parameter_shapes(const ModelConfig& config);

// Number of values in "embedding", "attention", "mlp", "norm" and "head" (0 when tied), in that order.
std::vector<std::pair<std::string, int64_t>> parameter_groups(const ModelConfig& config);

// Floating-point operations of forward and backward per token, PaLM's rule: 6 N + 12 L C T (N includes the tied embedding
// but neither learned positions nor an embedding that is only looked up).
double flops_per_token(const ModelConfig& config);

}  // namespace gpt
