// Listens to the parts of a training step (ops/part.h) and says how long each of them took, forward and backward. What lies
// between them is the program's own work around the operators: autograd, allocations, launches.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Event.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "gpt/ops/part.h"

namespace gpt::bench {

class PartClock {
 public:
  static constexpr size_t kBetween = ops::part::kAll.size();  // the index of what belongs to no part

  struct Times {
    struct OfPart {
      double forward_ms = 0, backward_ms = 0;
    };
    std::array<OfPart, kBetween + 1> parts;  // in the order of ops::part::kAll
    double launched_ms = 0;                  // until the host had launched all work
  };

  // One at a time. On a GPU the time is the stream's: parts are separated by events, and the host waits for nothing.
  explicit PartClock(at::Device device);
  ~PartClock();
  PartClock(const PartClock&) = delete;
  PartClock& operator=(const PartClock&) = delete;

  void begin();  // a step
  Times end();   // after all its work is done

 private:
  using Clock = std::chrono::steady_clock;

  struct Place {
    size_t part = kBetween;
    bool is_backward = false;
    std::pair<uint64_t, uint64_t> first_node = {};  // the forward thread, and the sequence number of its next node
  };
  struct Mark {
    Clock::time_point time;
    std::optional<c10::Event> event;
    size_t part;  // from here on
    bool is_backward;
  };
  struct Nodes {
    uint64_t end;
    size_t part;
  };

  void enter(const at::RecordFunction& function);
  void leave(const at::RecordFunction& function);
  size_t part_of_node(const at::RecordFunction& function) const;
  void mark();

  at::Device device_;
  at::CallbackHandle handle_;
  std::mutex mutex_;  // on a GPU the backward pass has a thread of its own
  std::vector<Place> places_;
  std::vector<Mark> marks_;
  // The nodes that a part made, by forward thread and sequence number of the first.
  std::map<std::pair<uint64_t, uint64_t>, Nodes> nodes_;
};

}  // namespace gpt::bench
