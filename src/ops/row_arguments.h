// From tensors to rows.h. The arguments are those of the functions in kernels.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "distillation_rows.h"
#include "gpt/ops/operators.h"
#include "gpt/parameters/pointers.h"

namespace gpt::ops {

template <class T, class B, class Mask>
AddNormRows<T, B, Mask> add_norm_rows(const Normalization& norm, const Mask& dropout, const at::Tensor& x,
                                      const at::Tensor& branch, const at::Tensor& sum, const at::Tensor& normed,
                                      const at::Tensor& statistics) {
  return {.is_centered = norm.kind == Norm::layernorm,
          .eps = static_cast<float>(norm.eps),
          .dropout = dropout,
          .C = norm.weight.value().numel(),
          .x = read<T>(x),
          .branch = read<B>(branch),
          .weight = read(norm.weight),
          .bias = read(norm.bias),
          .sum = branch.defined() ? write<T>(sum) : nullptr,
          .normed = write<T>(normed),
          .statistics = reinterpret_cast<RowStatistics*>(write<float>(statistics))};
}

template <class T, class B, class Mask>
AddNormGradients<T, B, Mask> add_norm_gradients(const Normalization& norm, const Mask& dropout, const at::Tensor& sum,
                                                const at::Tensor& statistics, const at::Tensor& sum_gradient,
                                                const at::Tensor& normed_gradient, const at::Tensor& x_gradient,
                                                const at::Tensor& branch_gradient) {
  return {.is_centered = norm.kind == Norm::layernorm,
          .dropout = dropout,
          .C = norm.weight.value().numel(),
          .sum = read<T>(sum),
          .statistics = reinterpret_cast<const RowStatistics*>(read<float>(statistics)),
          .weight = read(norm.weight),
          .sum_gradient = read<T>(sum_gradient),
          .normed_gradient = read<T>(normed_gradient),
          .x_gradient = write<T>(x_gradient),
          .branch_gradient = write<B>(branch_gradient)};
}

template <class T, class Mask>
EmbeddingRows<T, Mask> embedding_rows(const Mask& dropout, const at::Tensor& ids, const at::Tensor& table,
                                      const at::Tensor& positions, const at::Tensor& y) {
  return {.dropout = dropout,
          .V = table.size(0),
          .C = table.size(1),
          .length = ids.size(1),
          .ids = read<int64_t>(ids),
          .table = read<T>(table),
          .positions = read<T>(positions),
          .y = write<T>(y)};
}

template <class T>
CrossEntropyRows<T> cross_entropy_rows(const ClassifierOptions& options, const at::Tensor& logits,
                                       const at::Tensor& targets, const at::Tensor& losses, const at::Tensor& scale) {
  return {.vocabulary = options.vocabulary,
          .stride = logits.size(1),
          .smoothing = static_cast<float>(options.label_smoothing),
          .logits = write<T>(logits),
          .targets = read<int64_t>(targets),
          .losses = write<float>(losses),
          .scale = read<float>(scale)};
}

template <class T>
DistillationRows<T> distillation_rows(const ClassifierOptions& options, const at::Tensor& logits,
                                      const at::Tensor& teacher, const at::Tensor& targets, const at::Tensor& losses,
                                      const at::Tensor& scale) {
  return {.student = cross_entropy_rows<T>(options, logits, targets, losses, scale),
          .teacher = read<T>(teacher),
          .stride = teacher.size(1),
          .weight = static_cast<float>(options.teacher.weight),
          .temperature = static_cast<float>(options.teacher.temperature)};
}

}  // namespace gpt::ops
