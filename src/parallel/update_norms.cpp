#include "gpt/parallel/update_norms.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "gpt/layout/alignment.h"
#include "gpt/ops/flat_norm.h"

namespace gpt::parallel {
namespace {

enum Kind : int64_t { kGradient, kWeight, kUpdate };

}  // namespace

UpdateNorms::UpdateNorms(parameters::Parameters parameters, int64_t layers, Division division)
    : parameters_(std::move(parameters)),
      division_(std::move(division)),
      layers_(layers + 2),
      spans_(division_.spans(parameters_.rows(), parameters_.layout())),
      squares_(at::zeros({std::ssize(report::kLayerNormFields), layers_ + 1},
                         at::TensorOptions(parameters_.device()).dtype(at::kDouble))) {
  for (const layout::FlatSpan& span : spans_) places_.push_back(places_of(span));
}

// What several processes have alike counts once: in the first of those that divide layers, and of stages, a tied table in the first one.
at::Tensor UpdateNorms::places_of(layout::FlatSpan span) const {
  const layout::ModelPart part = division_.part();
  const at::Tensor places = at::zeros({(span.end - span.begin) / layout::kParameterAlignment}, at::kLong);
  for (size_t i = 0; i < parameters_.rows().size(); ++i) {
    const layout::ParameterRow& row = parameters_.rows()[i];
    const int64_t offset = parameters_.layout().offsets[i];
    const int64_t begin = std::max(span.begin, offset),
                  end = std::min(span.end, layout::aligned_end(offset + row.count()));
    if (!row.is_trained || begin >= end) continue;
    const bool is_counted = (row.cut || part.rank == 0) && (part.is_first_stage() || row.layer >= 0);
    places
        .slice(0, (begin - span.begin) / layout::kParameterAlignment, (end - span.begin) / layout::kParameterAlignment)
        .fill_(is_counted ? row.layer + 1 : layers_);
  }
  return places.to(parameters_.device());
}

void UpdateNorms::add_squares(int64_t kind, size_t span, const at::Tensor& values) {
  squares_[kind].index_add_(0, places_[span], ops::block_norms(values).to(at::kDouble).square());
}

void UpdateNorms::before_update(const at::Tensor& scale) {
  const at::NoGradGuard no_grad;
  squares_.zero_();
  before_.clear();
  for (size_t i = 0; i < spans_.size(); ++i) {
    add_squares(kGradient, i, parameters_.gradients_of(spans_[i]));
    before_.push_back(parameters_.values_of(spans_[i]).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true));
  }
  if (scale.defined()) squares_[kGradient].div_(scale.to(at::kDouble).square());
}

void UpdateNorms::after_update() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < spans_.size(); ++i) {
    const at::Tensor values = parameters_.values_of(spans_[i]);
    add_squares(kWeight, i, values);
    add_squares(kUpdate, i, before_[i].sub_(values));
  }
  before_.clear();
}

report::LayerNorms UpdateNorms::read() const {
  const at::Tensor squares = squares_.slice(1, 0, layers_).clone();
  if (division_.divides_state()) division_.ranks->sum(squares);
  if (division_.divides_layers()) division_.tensor->sum(squares);
  if (division_.has_stages()) division_.pipeline.stages->sum(squares);
  const at::Tensor norms = squares.sqrt().cpu();  // sync: a log line has read the device already
  report::LayerNorms read;
  for (size_t kind = 0; kind < report::kLayerNormFields.size(); ++kind) {
    const auto* const first = norms[static_cast<int64_t>(kind)].const_data_ptr<double>();
    (read.*report::kLayerNormFields[kind].second).assign(first, first + layers_);
  }
  return read;
}

}  // namespace gpt::parallel
