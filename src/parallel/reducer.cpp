#include "gpt/parallel/reducer.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "gpt/layout/layer_ends.h"
#include "gpt/parallel/equal_values.h"

namespace gpt::parallel {

Reducer::Reducer(parameters::Parameters parameters, Division division)
    : parameters_(std::move(parameters)),
      division_(std::move(division)),
      ends_(layout::layer_ends(parameters_.rows(), parameters_.layout())),
      wire_(division_.wire_of(parameters_[0].gradient_type())),
      tied_table_(trained_table_of_both_ends(parameters_, division_.pipeline)) {
  for (const Segment& segment : division_.segments(parameters_.rows(), parameters_.layout()))
    spans_.insert(spans_.end(), segment.begin(), segment.end());
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
  for (; summed_ < spans_.size() && spans_[summed_].end <= end; ++summed_) sum(spans_[summed_]);
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

void Reducer::sum(const OwnedSpan& span) {
  const auto part = [&](int64_t lane) {
    return parameters_.gradient_buffer(static_cast<size_t>(lane)).slice(0, span.begin, span.end);
  };
  distributed::in_pairs(division_.own_lanes(), [&part](int64_t kept, int64_t count) {
    for (int64_t lane = 0; lane < count; ++lane) part(lane).add_(part(kept + lane));
  });
  if (!division_.divides_state()) return division_.ranks->begin_sum(part(0), wire_);
  const layout::FlatSpan own = division_.own_part(span);
  division_.ranks->begin_sum_of_part(part(0), wire_, {part(0).slice(0, own.begin - span.begin, own.end - span.begin)},
                                     span.owner);
}

}  // namespace gpt::parallel
