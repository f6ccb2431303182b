#include "gpt/parallel/lanes.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "gpt/distributed/communicator.h"

namespace gpt::parallel {

Lanes::Lanes(parameters::Parameters parameters, int64_t count)
    : parameters_(std::move(parameters)), have_gradients_(static_cast<size_t>(count)) {
  for (int64_t lane = 0; lane < count; ++lane) losses_.push_back(at::zeros({}, parameters_.device()));
}

void Lanes::begin_update() { have_gradients_.assign(have_gradients_.size(), false); }

void Lanes::use(size_t lane) {
  in_use_ = lane;
  if (parameters_.segment_ends().empty()) parameters_.use_lane(lane);  // gradients that are divided have none
}

bool Lanes::begin_micro_batch() {
  const bool is_first = !have_gradients_[in_use_];
  have_gradients_[in_use_] = true;
  return is_first;
}

void Lanes::clear() {
  parameters_.clear_gradients();
  losses_[in_use_].zero_();
}

void Lanes::add_losses() {
  for (size_t lane = 0; lane < losses_.size(); ++lane)
    if (!have_gradients_[lane]) losses_[lane].zero_();
  distributed::in_pairs(std::ssize(losses_), [this](int64_t kept, int64_t count) {
    for (int64_t lane = 0; lane < count; ++lane)
      losses_[static_cast<size_t>(lane)].add_(losses_[static_cast<size_t>(kept + lane)]);
  });
}

}  // namespace gpt::parallel
