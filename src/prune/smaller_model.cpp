#include "gpt/prune/smaller_model.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "gpt/config/block_form.h"
#include "gpt/layout/parameter_table.h"

namespace gpt::prune {
namespace {

using Role = layout::ParameterRole;

at::Tensor chosen(const at::Tensor& weight, int64_t dim, const std::vector<int64_t>& indices) {
  return weight.detach().index_select(dim, at::tensor(indices).to(weight.device()));
}

// Rows of these heads, `width` each, behind `first` heads that are something else.
void add_rows_of(std::vector<int64_t>& rows, const std::vector<int64_t>& heads, int64_t first, int64_t width) {
  for (const int64_t head : heads)
    for (int64_t i = 0; i < width; ++i) rows.push_back((first + head) * width + i);
}

// What of a parameter stays, before which only whole layers were left out.
at::Tensor part_of(const layout::ParameterRow& row, const at::Tensor& weight, const KeptLayer& kept,
                   const ModelConfig& model) {
  const int64_t H = model.heads(), KV = model.kv_heads(), D = model.head_dim();
  std::vector<int64_t> heads;
  switch (row.role) {
    case Role::attention_in:
      add_rows_of(heads, kept.heads, 0, D);
      add_rows_of(heads, kept.kv_heads, H, D);
      add_rows_of(heads, kept.kv_heads, H + KV, D);
      return chosen(weight, 0, heads);
    case Role::attention_out:
      if (row.is_bias) return weight;
      add_rows_of(heads, kept.heads, 0, D);
      return chosen(weight, 1, heads);
    case Role::mlp_gate:
    case Role::mlp_in: return chosen(weight, 0, kept.neurons);
    case Role::mlp_out: return row.is_bias ? weight : chosen(weight, 1, kept.neurons);
    default: return weight;
  }
}

}  // namespace

ModelConfig smaller_config(ModelConfig model, const std::vector<KeptLayer>& kept) {
  const KeptLayer& layer = kept.front();
  const int64_t head_dim = model.head_dim(), kv_heads = std::ssize(layer.kv_heads);
  model.preset = Preset::none;
  model.n_hidden = std::ssize(layer.neurons);
  model.n_head = std::ssize(layer.heads);
  if (model.n_kv_head || kv_heads != *model.n_head) model.n_kv_head = kv_heads;
  std::string windows, rotations;
  for (const KeptLayer& one : kept) {
    windows += model.has_window(one.layer) ? 'S' : 'L';
    rotations += model.rotates(one.layer) ? 'R' : 'N';
  }
  if (model.attention_window > 0) model.window_pattern = windows;
  if (model.rope_pattern.find('N') != std::string::npos) model.rope_pattern = rotations;
  model.n_layer = std::ssize(kept);
  model.n_head_dim.reset();
  if (*model.n_head * head_dim != model.n_embd) model.n_head_dim = head_dim;
  return model;
}

parameters::NamedTensors smaller_weights(const ModelConfig& model, const parameters::NamedTensors& weights,
                                         const std::vector<KeptLayer>& kept) {
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(model);
  const std::vector<at::Tensor> tensors = parameters::tensors_of_rows(rows, weights, "model");
  parameters::NamedTensors smaller;
  for (const layout::ParameterRow& row : layout::parameter_table(smaller_config(model, kept))) {
    const bool is_in_layer = row.layer >= 0 && row.layer < std::ssize(kept);
    const int64_t was = is_in_layer     ? kept[static_cast<size_t>(row.layer)].layer
                        : row.layer < 0 ? row.layer
                                        : model.n_layer;
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const layout::ParameterRow& of) {
      return of.role == row.role && of.is_bias == row.is_bias && of.layer == was;
    });
    if (found == rows.end()) throw std::logic_error("the larger model has no " + row.name);
    const at::Tensor& weight = tensors[static_cast<size_t>(found - rows.begin())];
    smaller.emplace_back(row.name,
                         is_in_layer ? part_of(row, weight, kept[static_cast<size_t>(row.layer)], model) : weight);
  }
  return smaller;
}

}  // namespace gpt::prune
