#include "gpt/parallel/equal_values.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "gpt/parallel/divided_weights.h"

namespace gpt::parallel {

parameters::Parameter table_of_both_ends(const parameters::Parameters& parameters,
                                         const distributed::Pipeline& pipeline) {
  const auto row = layout::tied_row(parameters.rows());
  return row && pipeline.ends->size() > 1 ? parameters[*row] : parameters::Parameter();
}

parameters::Parameter trained_table_of_both_ends(const parameters::Parameters& parameters,
                                                 const distributed::Pipeline& pipeline) {
  const parameters::Parameter table = table_of_both_ends(parameters, pipeline);
  return table.is_trained() ? table : parameters::Parameter();
}

void make_table_equal(const parameters::Parameters& parameters, const distributed::Pipeline& pipeline) {
  const parameters::Parameter table = table_of_both_ends(parameters, pipeline);
  if (!table.defined()) return;
  const auto& divided = parameters.divided_values();
  if (!divided) return pipeline.ends->broadcast(table.value().detach());
  const int64_t begin = parameters.layout().offsets[*layout::tied_row(parameters.rows())],
                end = begin + table.value().numel();
  for (const auto& [span, values] : divided->own()) {
    const int64_t first = std::max(begin, span.begin), last = std::min(end, span.end);
    if (first < last) pipeline.ends->broadcast(values.slice(0, first - span.begin, last - span.begin));
  }
}

namespace {

void make_whole_values_equal(const parameters::Parameters& parameters, const distributed::Mesh& mesh) {
  if (mesh.all->size() == 1) return;
  if (mesh.data->size() > 1)
    for (const at::Tensor& part : parameters.kept_values()) mesh.data->broadcast(part);
  make_table_equal(parameters, mesh.pipeline);
  if (mesh.tensor->size() > 1) {
    for (size_t i = 0; i < parameters.rows().size(); ++i)
      if (!parameters.rows()[i].cut) mesh.tensor->broadcast(parameters[i].value().detach());
  }
  parameters.round_values();
}

// A part of a layer is its owner's; what all that divide layers have is made that of the first of these. It comes together for that, because
// their spans of it may differ.
void make_divided_values_equal(const parameters::Parameters& parameters, const distributed::Mesh& mesh) {
  make_table_equal(parameters, mesh.pipeline);
  if (mesh.tensor->size() == 1) return;
  const at::NoGradGuard no_gradients;
  for (size_t i = 0; i < parameters.rows().size(); ++i) {
    if (parameters.rows()[i].cut) continue;
    const at::Tensor value = undivided_value(parameters, i, *mesh.data);
    mesh.tensor->broadcast(value);
    parameters.divided_values()->set(i, value);
  }
}

}  // namespace

void make_equal(const model::GPT& model, const distributed::Mesh& mesh) {
  if (!model.parameters().divided_values()) return make_whole_values_equal(model.parameters(), mesh);
  make_divided_values_equal(model.parameters(), mesh);
  model.layer_weights()->values_changed();
}

}  // namespace gpt::parallel
