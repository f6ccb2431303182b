#include "gpt/parallel/reducer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "gpt/layout/cut.h"
#include "gpt/layout/freeze.h"
#include "gpt/layout/layer_ends.h"
#include "gpt/ops/flat_norm.h"

namespace gpt::parallel {
namespace {

// Of this process's part of all stages: which blocks are of parameters that are cut.
at::Tensor cut_blocks(const std::vector<ParameterRow>& rows, at::Device device) {
  const FlatLayout layout = flat_layout(rows);
  const at::Tensor blocks =
      at::zeros({layout.trained_size / kParameterAlignment}, at::TensorOptions(device).dtype(at::kBool));
  for (size_t i = 0; i < rows.size(); ++i) {
    const ParameterRow& row = rows[i];
    if (!row.is_trained || !row.cut) continue;
    blocks
        .slice(0, layout.offsets[i] / kParameterAlignment,
               aligned_end(layout.offsets[i] + row.count()) / kParameterAlignment)
        .fill_(true);
  }
  return blocks;
}

// All rows that a stage trains lie one behind the other in the buffer of the whole model too, but for the last one's copy of a tied table,
// which is the end of its own.
FlatSpan span_of_stage(const std::vector<ParameterRow>& own, const std::vector<ParameterRow>& all,
                       const ModelPart& part) {
  const ParameterRow& first_of_own = own[flat_order(own).front()];
  if (!first_of_own.is_trained) return {0, 0};
  const auto first =
      std::find_if(all.begin(), all.end(), [&](const ParameterRow& row) { return row.name == first_of_own.name; });
  const int64_t begin = flat_layout(all).offsets[static_cast<size_t>(first - all.begin())];
  int64_t length = 0;
  for (const ParameterRow& row : own)
    if (row.is_trained && (part.is_first_stage() || row.layer >= 0)) length += aligned_end(row.count());
  return {begin, begin + length};
}

}  // namespace

Reducer::Reducer(const ModelConfig& model, const std::vector<std::string>& frozen, Parameters parameters,
                 Division division)
    : parameters_(std::move(parameters)),
      division_(std::move(division)),
      ends_(layer_ends(parameters_.rows(), parameters_.layout())),
      wire_(division_.wire_of(parameters_[0].gradient_type())),
      spans_(division_.spans(parameters_.rows(), parameters_.layout())),
      of_stage_{0, parameters_.layout().trained_size},
      whole_size_(parameters_.layout().trained_size),
      tied_table_(trained_table_of_both_ends(parameters_, division_.pipeline)),
      rounds_table_at_random_(tied_table_.defined() && (division_.optimizer.state_dtype == StateDtype::bfloat16 ||
                                                        tied_table_.value().scalar_type() != at::kFloat)) {
  std::vector<ParameterRow> all = parameters_.rows();
  if (division_.has_stages()) {
    const ModelPart part = division_.part();
    all = cut(parameter_table(model, frozen), model, {.rank = part.rank, .size = part.size});
    of_stage_ = span_of_stage(parameters_.rows(), all, part);
    whole_size_ = flat_layout(all).trained_size;
  }
  for (const Segment& segment : division_.segments(parameters_.rows(), parameters_.layout()))
    stretches_.insert(stretches_.end(), segment.begin(), segment.end());
  if (division_.divides_layers()) is_cut_ = cut_blocks(all, parameters_.device());
}

void Reducer::begin(const std::vector<bool>& has_gradients) {
  const size_t in_use = parameters_.lane();
  for (size_t lane = 0; lane < has_gradients.size(); ++lane) {
    if (has_gradients[lane]) continue;
    parameters_.use_lane(lane);
    parameters_.mark_gradients();
    parameters_.gradient_buffer(lane).zero_();
  }
  parameters_.use_lane(in_use);
  summed_ = 0;
}

void Reducer::layer_done(int64_t layer) { complete(ends_[static_cast<size_t>(layer)]); }

void Reducer::complete(int64_t end) {
  for (; summed_ < stretches_.size() && stretches_[summed_].end <= end; ++summed_) sum(stretches_[summed_]);
}

void Reducer::finish() {
  add_other_end();
  complete(parameters_.layout().trained_size);
  division_.ranks->finish();
  for (auto lane = static_cast<size_t>(division_.own_lanes()); lane-- > 0;) {
    parameters_.use_lane(lane);
    (void)parameters_.flat_gradients();  // throws where a parameter has had none
  }
}

// Before the sums over lanes and processes that have the same stage, whose order is then the same at both ends. The table is the last that a
// backward pass completes, so that none of it is on its way yet.
void Reducer::add_other_end() const {
  if (!tied_table_.defined()) return;
  for (int64_t lane = 0; lane < division_.own_lanes(); ++lane) {
    parameters_.use_lane(static_cast<size_t>(lane));
    division_.pipeline.ends->begin_sum(tied_table_.gradient().view({-1}), wire_);
  }
  division_.pipeline.ends->finish();
}

at::Tensor Reducer::norm(const at::Tensor& loss) const {
  if (!division_.divides_state && !division_.has_stages() && !division_.divides_layers())
    return ops::flat_norm(parameters_.flat_gradients());
  at::Tensor norms = block_norms(loss);
  if (division_.has_stages()) norms = norms_of_stages(norms, loss);
  return division_.divides_layers() ? norm_of_parts(norms) : ops::norm_of_blocks(norms);
}

// The numbers that are added are those of each process's own blocks, and the norm of what all have, in their order.
at::Tensor Reducer::norm_of_parts(const at::Tensor& block_norms) const {
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
at::Tensor Reducer::norms_of_stages(const at::Tensor& block_norms, const at::Tensor& loss) const {
  const int64_t begin = of_stage_.begin / kParameterAlignment, end = of_stage_.end / kParameterAlignment,
                blocks = whole_size_ / kParameterAlignment;
  const at::Tensor sent = at::zeros({blocks + 1}, block_norms.options()), norms = sent.slice(0, 0, blocks);
  norms.slice(0, begin, end).copy_(block_norms.slice(0, 0, end - begin));
  sent[blocks].copy_(loss);
  division_.pipeline.stages->sum(sent);
  loss.copy_(sent[blocks]);
  return norms;
}

// Where processes divide the state, their spans have the blocks of all between them, so that each adds zeros to what it has not.
at::Tensor Reducer::block_norms(const at::Tensor& loss) const {
  if (!division_.divides_state) return ops::block_norms(parameters_.flat_gradients());
  const int64_t blocks = parameters_.layout().trained_size / kParameterAlignment;
  const at::Tensor sent = at::zeros({blocks + 1}, parameters_.device()), norms = sent.slice(0, 0, blocks);
  for (const FlatSpan& span : spans_)
    norms.slice(0, span.begin / kParameterAlignment, span.end / kParameterAlignment)
        .copy_(ops::block_norms(parameters_.gradients_of(span)));
  sent[blocks].copy_(loss);
  division_.ranks->sum(sent);
  loss.copy_(sent[blocks]);
  return norms;
}

void Reducer::make_table_equal() const {
  if (!rounds_table_at_random_) return;
  parallel::make_table_equal(parameters_, division_.pipeline);
  const size_t row = *tied_row(parameters_.rows());
  const int64_t begin = parameters_.layout().offsets[row];
  parameters_.round_values({begin, begin + parameters_.rows()[row].count()});
}

void Reducer::sum(const Stretch& stretch) {
  const auto part = [&](int64_t lane) {
    return parameters_.gradient_buffer(static_cast<size_t>(lane)).slice(0, stretch.begin, stretch.end);
  };
  distributed::in_pairs(division_.own_lanes(), [&part](int64_t kept, int64_t count) {
    for (int64_t lane = 0; lane < count; ++lane) part(lane).add_(part(kept + lane));
  });
  if (!division_.divides_state) return division_.ranks->begin_sum(part(0), wire_);
  const FlatSpan own = division_.own_part(stretch);
  division_.ranks->begin_sum_of_part(part(0), wire_,
                                     {part(0).slice(0, own.begin - stretch.begin, own.end - stretch.begin)},
                                     stretch.owner);
}

}  // namespace gpt::parallel
