#include "gpt/run/reducer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "gpt/layout/layer_ends.h"
#include "gpt/ops/flat_norm.h"

namespace gpt::run {
Reducer::Reducer(Parameters parameters, Division division)
    : parameters_(std::move(parameters)),
      division_(std::move(division)),
      ends_(layer_ends(parameters_.rows(), parameters_.layout())),
      wire_(division_.wire_of(parameters_[0].gradient_type())),
      spans_(division_.spans(parameters_.rows(), parameters_.layout())) {
  for (const Segment& segment : division_.segments(parameters_.rows(), parameters_.layout()))
    stretches_.insert(stretches_.end(), segment.begin(), segment.end());
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
  complete(parameters_.layout().trained_size);
  division_.ranks->finish();
  for (auto lane = static_cast<size_t>(division_.own_lanes()); lane-- > 0;) {
    parameters_.use_lane(lane);
    (void)parameters_.flat_gradients();  // throws where a parameter has had none
  }
}

// The processes' spans have the blocks of all between them, so that each adds zeros to what it has not.
at::Tensor Reducer::norm(const at::Tensor& loss) const {
  if (!division_.divides_state) return ops::flat_norm(parameters_.flat_gradients());
  const int64_t blocks = parameters_.layout().trained_size / kParameterAlignment;
  const at::Tensor sent = at::zeros({blocks + 1}, parameters_.device()), norms = sent.slice(0, 0, blocks);
  for (const FlatSpan& span : spans_)
    norms.slice(0, span.begin / kParameterAlignment, span.end / kParameterAlignment)
        .copy_(ops::block_norms(parameters_.gradients_of(span)));
  sent[blocks].copy_(loss);
  division_.ranks->sum(sent);
  loss.copy_(sent[blocks]);
  return ops::norm_of_blocks(norms);
}

void Reducer::gather_values() {
  if (!division_.divides_state) return;
  const at::Tensor values = parameters_.flat_values().detach();
  for (const Stretch& stretch : stretches_)
    division_.ranks->begin_gather(values.slice(0, stretch.begin, stretch.end), stretch.owner);
  division_.ranks->finish();
  parameters_.round_values();
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

}  // namespace gpt::run
