// The lanes of a process, each of which adds up its micro-batches of an update (division.h): their gradients, which the parameters hold, and
// their losses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpt/parameters/parameters.h"

namespace gpt::parallel {

class Lanes {
 public:
  Lanes(parameters::Parameters parameters, int64_t count);

  void begin_update();  // no lane has gradients
  void use(size_t lane);
  size_t in_use() const { return in_use_; }
  // A micro-batch begins in the lane in use: whether it is the first one, before whose passes clear() must be called.
  bool begin_micro_batch();
  void clear();
  const at::Tensor& loss() const { return losses_[in_use_]; }  // of the lane in use; float32 scalars on the device

  const std::vector<bool>& have_gradients() const { return have_gradients_; }  // by lane
  const at::Tensor& sum() const { return losses_[0]; }                         // once add_losses() has been called
  void add_losses();

 private:
  parameters::Parameters parameters_;
  size_t in_use_ = 0;
  std::vector<bool> have_gradients_;
  std::vector<at::Tensor> losses_;
};

}  // namespace gpt::parallel
