// Buffer swapping (Rhu et al., vDNN, 2016): what the first blocks of a model keep for their backward pass waits for it in the memory of the
// host. Copies go both ways beside what is computed: out while the next block computes forward, and in again while the block behind computes
// backward, so that two blocks' are on the device at a time. Values stay what they are, to the bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gpt/device/host_copies.h"
#include "gpt/ops/rotary.h"

namespace gpt::model {

// How many blocks of a forward pass and a backward pass are on the device at a time, of those that are swapped.
inline constexpr int64_t kSwappedOnDevice = 2;

class ActivationSwap {
 public:
  // Blocks 0 to before `layers` are swapped. A forward pass must have been passed backward, or abandoned, before the next one begins.
  ActivationSwap(int64_t layers, std::shared_ptr<device::HostCopies> copies);
  ~ActivationSwap();
  ActivationSwap(const ActivationSwap&) = delete;
  ActivationSwap& operator=(const ActivationSwap&) = delete;

  // Does work, the forward pass of this block: what this thread's operators keep meanwhile leaves the device then, but for what is small,
  // and for the rotary tables, which are there all the time.
  void in_forward(int64_t layer, const ops::RotaryTables& stays, const std::function<void()>& work);

  // What a backward pass calls for each layer, as LayerWeights::in_backward() has it.
  std::function<void(int64_t layer)> in_backward(std::function<void(int64_t layer)> done);

  int64_t host_bytes() const;  // that it has taken

  struct OfLayer;

 private:
  bool is_swapped(int64_t layer) const { return layer >= 0 && layer < static_cast<int64_t>(layers_.size()); }
  void passed(int64_t layer);
  void fetch(int64_t layer);
  OfLayer* in_pass(int64_t layer) const;  // null where nothing of it waits, such as a block before all that are trained

  const std::shared_ptr<device::HostCopies> copies_;
  std::vector<std::shared_ptr<OfLayer>> layers_;  // of the pass that is under way
  std::vector<std::vector<at::Tensor>> buffers_;  // of each layer, used again by the next pass
};

}  // namespace gpt::model
