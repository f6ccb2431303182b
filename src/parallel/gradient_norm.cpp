#include "gpt/parallel/gradient_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "gpt/layout/cut.h"
#include "gpt/ops/flat_norm.h"

namespace gpt::parallel {
namespace {

// Which blocks of this process's part of all stages are of parameters that are cut.
at::Tensor cut_blocks(const std::vector<layout::ParameterRow>& rows, at::Device device) {
  const layout::FlatLayout layout = layout::flat_layout(rows);
  const at::Tensor blocks =
      at::zeros({layout.trained_size / layout::kParameterAlignment}, at::TensorOptions(device).dtype(at::kBool));
  for (size_t i = 0; i < rows.size(); ++i) {
    const layout::ParameterRow& row = rows[i];
    if (!row.is_trained || !row.cut) continue;
    blocks
        .slice(0, layout.offsets[i] / layout::kParameterAlignment,
               layout::aligned_end(layout.offsets[i] + row.count()) / layout::kParameterAlignment)
        .fill_(true);
  }
  return blocks;
}

// All rows that a stage trains lie one behind the other in the buffer of the whole model too, but for the last one's copy of a tied table,
// which is the end of its own.
layout::FlatSpan span_of_stage(const std::vector<layout::ParameterRow>& own,
                               const std::vector<layout::ParameterRow>& all, const layout::ModelPart& part) {
  const layout::ParameterRow& first_of_own = own[layout::flat_order(own).front()];
  if (!first_of_own.is_trained) return {0, 0};
  const auto first = std::find_if(all.begin(), all.end(),
                                  [&](const layout::ParameterRow& row) { return row.name == first_of_own.name; });
  const int64_t begin = layout::flat_layout(all).offsets[static_cast<size_t>(first - all.begin())];
  int64_t length = 0;
  for (const layout::ParameterRow& row : own)
    if (row.is_trained && (part.is_first_stage() || row.layer >= 0)) length += layout::aligned_end(row.count());
  return {begin, begin + length};
}

}  // namespace

GradientNorm::GradientNorm(const model::GPT& model, const std::vector<layout::ParameterRow>& of_model,
                           Division division)
    : parameters_(model.parameters()),
      division_(std::move(division)),
      spans_(division_.spans(parameters_.rows(), parameters_.layout())),
      of_stage_{0, parameters_.layout().trained_size},
      whole_size_(parameters_.layout().trained_size) {
  std::vector<layout::ParameterRow> all = parameters_.rows();
  if (division_.has_stages()) {
    const layout::ModelPart part = division_.part();
    all = layout::cut(of_model, model.config(), {.rank = part.rank, .size = part.size});
    of_stage_ = span_of_stage(parameters_.rows(), all, part);
    whole_size_ = layout::flat_layout(all).trained_size;
  }
  if (division_.divides_layers()) is_cut_ = cut_blocks(all, parameters_.device());
}

at::Tensor GradientNorm::of_sum(const at::Tensor& loss) const {
  if (!division_.divides_state() && !division_.has_stages() && !division_.divides_layers())
    return ops::flat_norm(parameters_.flat_gradients());
  at::Tensor norms = block_norms(loss);
  if (division_.has_stages()) norms = norms_of_stages(norms, loss);
  return division_.divides_layers() ? norm_of_parts(norms) : ops::norm_of_blocks(norms);
}

// The numbers that are added are those of each process's own blocks, and the norm of what all have, in their order.
at::Tensor GradientNorm::norm_of_parts(const at::Tensor& block_norms) const {
  distributed::Communicator& tensor = *division_.tensor;
  const auto norm_where = [&](const at::Tensor& is_wanted) {
    return ops::norm_of_blocks(block_norms.masked_fill(is_wanted.logical_not(), 0));
  };
  const at::Tensor norms = at::zeros({tensor.size() + 1}, block_norms.options());
  norms[tensor.rank()].copy_(norm_where(is_cut_));
  tensor.sum(norms);
  norms[tensor.size()].copy_(norm_where(is_cut_.logical_not()));
  return ops::norm_of_blocks(norms);
}

// Each adds zeros to what it has not: so the norm is, to the bit, that of the whole buffer.
at::Tensor GradientNorm::norms_of_stages(const at::Tensor& block_norms, const at::Tensor& loss) const {
  const int64_t begin = of_stage_.begin / layout::kParameterAlignment,
                end = of_stage_.end / layout::kParameterAlignment, blocks = whole_size_ / layout::kParameterAlignment;
  const at::Tensor sent = at::zeros({blocks + 1}, block_norms.options()), norms = sent.slice(0, 0, blocks);
  norms.slice(0, begin, end).copy_(block_norms.slice(0, 0, end - begin));
  sent[blocks].copy_(loss);
  division_.pipeline.stages->sum(sent);
  loss.copy_(sent[blocks]);
  return norms;
}

// Where processes divide the state, their spans have the blocks of all between them, so that each adds zeros to what it has not.
at::Tensor GradientNorm::block_norms(const at::Tensor& loss) const {
  if (!division_.divides_state()) return ops::block_norms(parameters_.flat_gradients());
  const int64_t blocks = parameters_.layout().trained_size / layout::kParameterAlignment;
  const at::Tensor sent = at::zeros({blocks + 1}, parameters_.device()), norms = sent.slice(0, 0, blocks);
  for (const layout::FlatSpan& span : spans_)
    norms.slice(0, span.begin / layout::kParameterAlignment, span.end / layout::kParameterAlignment)
        .copy_(ops::block_norms(parameters_.gradients_of(span)));
  sent[blocks].copy_(loss);
  division_.ranks->sum(sent);
  loss.copy_(sent[blocks]);
  return norms;
}

}  // namespace gpt::parallel
