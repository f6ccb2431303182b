#include "gpt/parallel/arriving_weights.h"

#include <exception>
#include <utility>

#include "gpt/distributed/communicator.h"
#include "gpt/layout/layer_ends.h"

namespace gpt::parallel {

ArrivingWeights::ArrivingWeights(const model::GPT& model, Division division, bool overlaps)
    : parameters_(model.parameters()),
      division_(std::move(division)),
      layers_(model.layers()),
      overlaps_(overlaps),
      ends_(layout::layer_ends(parameters_.rows(), parameters_.layout())) {
  for (const Segment& segment : division_.segments(parameters_.rows(), parameters_.layout()))
    for (const OwnedSpan& span : segment) spans_.insert(spans_.begin(), span);
}

ArrivingWeights::~ArrivingWeights() {
  try {
    await_all();
  } catch (const std::exception&) {}  // another process is lost, which the next one who asks it learns
}

void ArrivingWeights::values_changed() {
  await_all();
  const at::Tensor values = parameters_.flat_values().detach();
  std::vector<distributed::Gathering> gatherings;
  for (const OwnedSpan& span : spans_) gatherings.push_back({values.slice(0, span.begin, span.end), span.owner});
  waits_ = division_.ranks->begin_gathers(gatherings);
  arrived_ = 0;
  await_from(overlaps_ && !ends_.empty() ? ends_.front() : 0);
}

// Behind the last block what follows it is needed too.
void ArrivingWeights::use(int64_t layer) {
  await_from(layer + 1 < layers_.end ? ends_[static_cast<size_t>(layer) + 1] : 0);
}

void ArrivingWeights::await_from(int64_t offset) {
  for (; arrived_ < waits_.size() && spans_[arrived_].end > offset; ++arrived_) {
    waits_[arrived_]();
    parameters_.round_values({spans_[arrived_].begin, spans_[arrived_].end});
  }
}

}  // namespace gpt::parallel
