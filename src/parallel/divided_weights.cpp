#include "gpt/parallel/divided_weights.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

namespace gpt::parallel {

// Nothing is rounded: to each number of one process the others add zeros, as integers.
at::Tensor undivided_value(const parameters::Parameters& parameters, size_t row, distributed::Communicator& ranks) {
  const at::ScalarType type = parameters[row].value().scalar_type();
  const int64_t begin = parameters.layout().offsets[row], count = parameters.rows()[row].count(),
                size = count * static_cast<int64_t>(c10::elementSize(type));
  const at::Tensor numbers = at::zeros({at::divup(size, int64_t{sizeof(int64_t)})}, at::kLong),
                   value = numbers.view(at::kByte).narrow(0, 0, size).view(type);
  for (const auto& [span, own] : parameters.divided_values()->own()) {
    const int64_t first = std::max(begin, span.begin), last = std::min(begin + count, span.end);
    if (first < last)
      value.slice(0, first - begin, last - begin).copy_(own.slice(0, first - span.begin, last - span.begin));
  }
  ranks.sum(numbers);
  return value.view(parameters.rows()[row].shape);
}

DividedWeights::DividedWeights(parameters::Parameters parameters, const Division& division)
    : parameters_(std::move(parameters)),
      division_(division),
      segments_(division.segments(parameters_.rows(), parameters_.layout())) {
  const parameters::DividedValues& values = *parameters_.divided_values();
  int64_t longest = 0;
  layers_.begin = layers_.end = std::ssize(values.blocks());
  for (const auto& [begin, end] : values.blocks()) {
    longest = std::max(longest, end - begin);
    if (begin < end) --layers_.begin;
  }
  for (Room& room : rooms_)
    room.memory = at::empty({longest}, at::TensorOptions(parameters_.device()).dtype(values.compute_type()));
}

DividedWeights::~DividedWeights() {
  for (const Room& room : rooms_)
    if (room.is_there) parameters_.divided_values()->take_back(static_cast<size_t>(room.layer));
}

DividedWeights::Room* DividedWeights::room_of(int64_t layer) {
  auto* const found =
      std::find_if(rooms_.begin(), rooms_.end(), [layer](const Room& room) { return room.layer == layer; });
  return found == rooms_.end() ? nullptr : found;
}

at::Tensor DividedWeights::memory_of(const Room& room) const {
  const auto [begin, end] = parameters_.divided_values()->blocks()[static_cast<size_t>(room.layer)];
  return room.memory.narrow(0, 0, end - begin);
}

void DividedWeights::fetch(int64_t layer) {
  Room& room = *room_of(kNone);
  room.layer = layer;
  const parameters::DividedValues& values = *parameters_.divided_values();
  const at::Tensor memory = memory_of(room);
  values.copy_own(static_cast<size_t>(layer), memory);
  const int64_t begin = values.blocks()[static_cast<size_t>(layer)].begin;
  for (const Segment& segment : segments_) {
    if (segment.front().begin != begin) continue;
    for (const OwnedSpan& span : segment)
      division_.ranks->begin_gather(memory.slice(0, span.begin - begin, span.end - begin), span.owner);
  }
}

void DividedWeights::finish() {
  for (Room& room : rooms_) {
    if (room.layer == kNone || room.is_there) continue;
    division_.ranks->finish();
    room.is_there = true;
    parameters_.divided_values()->lend(static_cast<size_t>(room.layer), memory_of(room));
  }
}

void DividedWeights::release(Room& room) {
  if (room.layer == kNone) return;
  parameters_.divided_values()->take_back(static_cast<size_t>(room.layer));
  const at::NoGradGuard no_grad;
  memory_of(room).view({-1, layout::kParameterAlignment}).select(1, 0).fill_(std::numeric_limits<float>::quiet_NaN());
  room.layer = kNone, room.is_there = false;
}

void DividedWeights::use(int64_t layer) {
  if (!is_here(layer)) return;
  if (works_apart_) {
    if (layer == layers_.begin) (void)division_.ranks->is_any(true);
    is_within_pass_ = layer + 1 < layers_.end;
  }
  finish();
  for (Room& room : rooms_)
    if (room.layer != layer) release(room);
  if (room_of(layer)) return;
  fetch(layer);
  finish();
}

void DividedWeights::prefetch(int64_t layer) {
  if (is_here(layer) && !room_of(layer)) fetch(layer);
}

void DividedWeights::join_forward() {
  for (int64_t layer = layers_.begin; layer < layers_.end; ++layer) before_forward(layer);
}

void DividedWeights::work_apart(const std::function<void()>& work) {
  std::exception_ptr failure;
  works_apart_ = true;
  try {
    work();
  } catch (...) { failure = std::current_exception(); }
  works_apart_ = false;
  if (!std::exchange(is_within_pass_, false))
    while (division_.ranks->is_any(false)) join_forward();
  if (failure) std::rethrow_exception(failure);
}

void DividedWeights::values_changed() {
  const at::NoGradGuard no_grad;
  finish();
  for (Room& room : rooms_) release(room);
  const parameters::DividedValues& values = *parameters_.divided_values();
  const at::Tensor vectors = values.follow_own();
  for (const Segment& segment : segments_) {
    if (!values.is_outside({segment.front().begin, segment.back().end})) continue;
    for (const OwnedSpan& span : segment) division_.ranks->begin_gather(values.outside_of(span), span.owner);
  }
  division_.ranks->finish();
  if (!vectors.defined()) return;
  division_.ranks->sum(vectors.view(at::kLong));  // of numbers and zeros, as integers: nothing is rounded
  values.set_float32_vectors(vectors);
}

}  // namespace gpt::parallel
