#include "part_clock.h"

#include <ATen/SequenceNumber.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <string_view>
#include <tuple>

namespace gpt::bench {
namespace {

PartClock* listener = nullptr;  // callbacks are plain functions

size_t part_named(std::string_view name) {
  return static_cast<size_t>(std::find(ops::part::kAll.begin(), ops::part::kAll.end(), name) - ops::part::kAll.begin());
}

std::pair<uint64_t, uint64_t> next_node() {
  return {at::RecordFunction::currentThreadId(), at::sequence_number::peek()};
}

}  // namespace

PartClock::PartClock(at::Device device) : device_(device) {
  TORCH_CHECK(!listener, "PartClock: there is one already");
  listener = this;
  const auto enter = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    listener->enter(function);
    return nullptr;
  };
  const auto leave = [](const at::RecordFunction& function, at::ObserverContext*) { listener->leave(function); };
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(enter, leave)
                                      .scopes({at::RecordScope::USER_SCOPE, at::RecordScope::BACKWARD_FUNCTION}));
}

PartClock::~PartClock() {
  at::removeCallback(handle_);
  listener = nullptr;
}

void PartClock::begin() {
  const std::lock_guard lock(mutex_);
  places_ = {{}};
  marks_.clear();
  nodes_.clear();
  mark();
}

PartClock::Times PartClock::end() {
  const std::lock_guard lock(mutex_);
  Times times;
  times.launched_ms = std::chrono::duration<double, std::milli>(marks_.back().time - marks_.front().time).count();
  mark();
  if (device_.is_cuda()) marks_.back().event->synchronize();
  for (size_t i = 0; i + 1 < marks_.size(); ++i) {
    const Mark &from = marks_[i], &to = marks_[i + 1];
    auto& of_part = times.parts[from.part];
    (from.is_backward ? of_part.backward_ms : of_part.forward_ms) +=
        from.event ? from.event->elapsedTime(*to.event)
                   : std::chrono::duration<double, std::milli>(to.time - from.time).count();
  }
  return times;
}

void PartClock::enter(const at::RecordFunction& function) {
  const std::lock_guard lock(mutex_);
  if (places_.empty()) return;  // before the first step
  Place place = places_.back();
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    place = {part_of_node(function), true};
  } else if (const size_t part = part_named(function.name()); part < kBetween) {
    place.part = part;
    place.first_node = next_node();
  }
  places_.push_back(place);
  mark();
}

void PartClock::leave(const at::RecordFunction& function) {
  const std::lock_guard lock(mutex_);
  if (places_.size() < 2) return;  // it was entered before the step began
  const Place place = places_.back();
  places_.pop_back();
  mark();
  if (function.scope() == at::RecordScope::USER_SCOPE && place.part < kBetween)
    nodes_[place.first_node] = {next_node().second, place.part};
}

size_t PartClock::part_of_node(const at::RecordFunction& function) const {
  const std::pair node{function.forwardThreadId(), static_cast<uint64_t>(function.seqNr())};
  auto after = nodes_.upper_bound(node);
  if (after == nodes_.begin()) return kBetween;
  const auto& [first, nodes] = *--after;
  return first.first == node.first && node.second < nodes.end ? nodes.part : kBetween;
}

void PartClock::mark() {
  Mark mark{Clock::now(), std::nullopt, places_.back().part, places_.back().is_backward};
  if (device_.is_cuda()) {
    mark.event.emplace(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    mark.event->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  marks_.push_back(std::move(mark));
}

}  // namespace gpt::bench
