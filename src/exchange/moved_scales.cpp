#include "moved_scales.h"

#include <ATen/TensorOperators.h>

#include <cmath>

#include "gpt/exchange/hugging_face.h"
#include "gpt/layout/parameter_table.h"

namespace gpt::exchange {
namespace {

double embedding_factor(const ModelConfig& model) {
  return model.scaled_embedding ? std::sqrt(static_cast<double>(model.n_embd)) : 1;
}

double norm_offset(const ModelConfig& model) { return model.norm_unit_offset ? 1 : 0; }

// A tied head is the embedding, so the norm before it makes up for what that was multiplied by.
at::Tensor moved(const at::Tensor& values, const layout::ParameterRow& row, const ModelConfig& from,
                 const ModelConfig& to) {
  const double of_embedding = embedding_factor(from) / embedding_factor(to);
  if (row.role == layout::ParameterRole::token_embedding) return of_embedding == 1 ? values : values * of_embedding;
  if (!layout::is_norm(row.role)) return values;
  const bool is_before_tied_head = row.role == layout::ParameterRole::final_norm && from.tie_weights;
  const double factor = is_before_tied_head ? 1 / of_embedding : 1;
  if (row.is_bias) return values * factor;
  return (values + norm_offset(from)) * factor - norm_offset(to);
}

}  // namespace

checkpoint::Checkpoint with_scales_moved(checkpoint::Checkpoint checkpoint) {
  ModelConfig& model = checkpoint.config.model;
  const ModelConfig from = model, to = with_scales_moved(model);
  if (from.norm_unit_offset == to.norm_unit_offset && from.scaled_embedding == to.scaled_embedding) return checkpoint;
  for (const layout::ParameterRow& row : layout::parameter_table(from))
    for (auto& [name, values] : checkpoint.model)
      if (name == row.name) values = moved(values, row, from, to);
  model = to;
  return checkpoint;
}

}  // namespace gpt::exchange
