// Weights of blocks that no process has all of (ZeRO 3): a block's come together from all processes before it computes, and are gone after
// it. There is memory for two blocks: one that computes, and one whose weights are on their way.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "gpt/layout/stages.h"
#include "gpt/model/layer_weights.h"
#include "gpt/parallel/division.h"
#include "gpt/parameters/parameters.h"

namespace gpt::parallel {

// The value of a row, or of the part of it that this process and the others of `ranks` have: in the host's memory, in the type in which it is
// kept. All of `ranks` call it.
at::Tensor undivided_value(const parameters::Parameters& parameters, size_t row, distributed::Communicator& ranks);

// All processes make the same forward and backward passes at the same time, but in work_apart(). What has come together stays until another
// block needs its memory, or values change. What is released is spoiled: every kParameterAlignment-th value becomes NaN, so that a use of
// it would show; and its tensors have no data.
class DividedWeights : public model::LayerWeights {
 public:
  // The parameters' values are divided.
  DividedWeights(parameters::Parameters parameters, const Division& division);
  ~DividedWeights() override;
  DividedWeights(const DividedWeights&) = delete;
  DividedWeights& operator=(const DividedWeights&) = delete;

  void join_forward() override;
  // An exception of the work is passed on, once all have ended theirs, unless it comes from within a forward pass: the others then wait for
  // this process, and learn that it is lost.
  void work_apart(const std::function<void()>& work) override;
  void values_changed() override;
  void await_all() override {}  // it keeps its own

 protected:
  void use(int64_t layer) override;
  void prefetch(int64_t layer) override;

 private:
  static constexpr int64_t kNone = -1;
  struct Room {
    at::Tensor memory;  // of the longest block
    int64_t layer = kNone;
    bool is_there = false;  // otherwise it is on its way
  };

  bool is_here(int64_t layer) const { return layers_.begin <= layer && layer < layers_.end; }
  Room* room_of(int64_t layer);
  at::Tensor memory_of(const Room& room) const;  // as long as its block
  void fetch(int64_t layer);                     // begins; there is an empty room
  void finish();                                 // all that is on its way is there
  void release(Room& room);

  parameters::Parameters parameters_;
  Division division_;
  layout::LayerSpan layers_{};     // of this process's stage
  std::vector<Segment> segments_;  // as Division::segments() has them
  std::array<Room, 2> rooms_;
  bool works_apart_ = false, is_within_pass_ = false;
};

}  // namespace gpt::parallel
