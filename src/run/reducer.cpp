#include "gpt/run/reducer.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <utility>

#include "gpt/layout/parameter_table.h"

namespace gpt::run {
namespace {

// Of each layer, where its last parameter ends.
std::vector<int64_t> ends_of_layers(const Parameters& parameters) {
  std::vector<int64_t> ends;
  for (size_t i = 0; i < parameters.rows().size(); ++i) {
    const ParameterRow& row = parameters.rows()[i];
    if (row.layer < 0) continue;  // the embeddings, which come last
    ends.resize(std::max(ends.size(), static_cast<size_t>(row.layer) + 1));
    int64_t& end = ends[static_cast<size_t>(row.layer)];
    end = std::max(end, aligned_end(parameters.layout().offsets[i] + row.count()));
  }
  return ends;
}

// A small model's gradients are sent in several stretches too, but not in such short ones that beginning them takes longer.
int64_t stretch_of(int64_t size, at::ScalarType wire) {
  constexpr int64_t kStretches = 8, kLeastBytes = 256 << 10;
  const auto bytes = static_cast<int64_t>(c10::elementSize(wire));
  return std::clamp(aligned_end(size / kStretches), kLeastBytes / bytes, distributed::kStretchBytes / bytes);
}

}  // namespace

Reducer::Reducer(Parameters parameters, Division division)
    : parameters_(std::move(parameters)),
      division_(std::move(division)),
      ends_(ends_of_layers(parameters_)),
      wire_(division_.wire_of(parameters_[0].gradient_type())),
      stretch_(stretch_of(parameters_.layout().size, wire_)) {}

void Reducer::begin(const std::vector<bool>& has_gradients) {
  for (size_t lane = 0; lane < has_gradients.size(); ++lane)
    if (!has_gradients[lane]) parameters_.gradient_buffer(lane).zero_();
  summed_ = 0;
}

void Reducer::layer_done(int64_t layer) { complete(ends_[static_cast<size_t>(layer)]); }

void Reducer::complete(int64_t end) {
  for (; summed_ + stretch_ <= end; summed_ += stretch_) sum(summed_, summed_ + stretch_);
}

void Reducer::finish() {
  const int64_t size = parameters_.layout().size;
  complete(size);
  if (summed_ < size) sum(summed_, size);
  division_.ranks->finish_sums();
  parameters_.use_lane(0);
  parameters_.mark_gradients();
}

void Reducer::sum(int64_t begin, int64_t end) {
  const auto part = [&](int64_t lane) {
    return parameters_.gradient_buffer(static_cast<size_t>(lane)).slice(0, begin, end);
  };
  for (int64_t count = division_.own_lanes(); count > 1; count = (count + 1) / 2) {
    const int64_t kept = (count + 1) / 2;
    for (int64_t lane = kept; lane < count; ++lane) part(lane - kept).add_(part(lane));
  }
  division_.ranks->begin_sum(part(0), wire_);
}

}  // namespace gpt::run
