#include "gpt/parallel/divided_gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "gpt/layout/layer_ends.h"
#include "gpt/parallel/equal_values.h"

namespace gpt::parallel {

DividedGradients::DividedGradients(parameters::Parameters parameters, const Division& division)
    : parameters_(std::move(parameters)),
      division_(division),
      ends_(layout::layer_ends(parameters_.rows(), parameters_.layout())),
      segments_(division.segments(parameters_.rows(), parameters_.layout())),
      wire_(division.wire_of(parameters_[0].gradient_type())),
      has_other_end_(trained_table_of_both_ends(parameters_, division.pipeline).defined()),
      lanes_(division.own_lanes()),
      slots_(std::max<int64_t>(1, lanes_ / 2)) {
  std::vector<int64_t> ends;
  for (const Segment& segment : segments_) ends.push_back(segment.back().end);
  parameters_.divide_gradients(std::move(ends));
}

void DividedGradients::begin_update() {
  parameters_.clear_gradients();
  round_ = 0, sent_ = 0;
}

void DividedGradients::layer_done(int64_t layer, bool has_gradients) {
  while (sent_ < segments_.size() && segments_[sent_].back().end <= ends_[static_cast<size_t>(layer)])
    send(sent_++, has_gradients);
}

void DividedGradients::end_round(bool has_gradients) {
  while (sent_ < segments_.size()) send(sent_++, has_gradients);
  division_.ranks->finish();
  sent_ = 0;
  ++round_;
}

// What is sent keeps the segment's memory until it has gone.
void DividedGradients::send(size_t segment, bool has_gradients) {
  division_.ranks->finish();  // so that no more than this segment and the next are there
  const int64_t begin = segments_[segment].front().begin, end = segments_[segment].back().end;
  const at::TensorOptions options = at::TensorOptions(parameters_.device()).dtype(parameters_[0].gradient_type());
  const at::Tensor gradients = has_gradients ? parameters_.take_gradients(segment) : at::zeros({end - begin}, options);
  std::vector<at::Tensor>& sums = sums_of(segment);
  for (size_t i = 0; i < segments_[segment].size(); ++i) {
    const OwnedSpan& span = segments_[segment][i];
    division_.ranks->begin_sum_of_part(gradients.slice(0, span.begin - begin, span.end - begin), wire_,
                                       {sums[i], adds()}, span.owner);
  }
}

// The slot of this round, which lane l shares with lane l + L/2: the two are added first.
std::vector<at::Tensor>& DividedGradients::sums_of(size_t segment) {
  TORCH_CHECK(lanes_ == 1 || round_ < lanes_, "DividedGradients: more micro-batches than lanes");
  auto& slot = sums_[{round_ % slots_, segment}];
  if (!slot.empty()) return slot;
  for (const OwnedSpan& span : segments_[segment]) {
    const auto [begin, end] = division_.own_part(span);
    const auto options = at::TensorOptions(parameters_.device()).dtype(at::kFloat);
    slot.push_back(lanes_ == 1 ? at::empty({end - begin}, options)
                               : at::empty({division_.ranks->size(), end - begin}, options));
  }
  return slot;
}

int64_t DividedGradients::bytes() const {
  size_t bytes = 0;
  for (const auto& [slot, sums] : sums_)
    for (const at::Tensor& sum : sums) bytes += sum.nbytes();
  return static_cast<int64_t>(bytes);
}

void DividedGradients::finish() {
  for (; round_ < lanes_; ++round_) {  // which nobody had
    for (size_t segment = 0; segment < segments_.size(); ++segment)
      for (const at::Tensor& sum : sums_of(segment)) adds() ? sum.add_(0.0) : sum.zero_();
  }
  std::vector<parameters::GradientSum> sums;
  for (size_t segment = 0; segment < segments_.size(); ++segment) {
    for (size_t i = 0; i < segments_[segment].size(); ++i) {
      const auto of = [&](int64_t slot) { return sums_[{slot, segment}][i]; };
      distributed::in_pairs(slots_, [&of](int64_t kept, int64_t count) {
        for (int64_t slot = 0; slot < count; ++slot) of(slot).add_(of(kept + slot));
      });
      if (lanes_ > 1) distributed::add_in_pairs(of(0));
      sums.push_back({division_.own_part(segments_[segment][i]), lanes_ > 1 ? of(0)[0] : of(0)});
      if (has_other_end_ && segment == segments_.size() - 1)
        division_.pipeline.ends->begin_sum(sums.back().values, division_.wire);
    }
  }
  division_.pipeline.ends->finish();
  parameters_.set_gradient_sums(std::move(sums));
}

}  // namespace gpt::parallel
