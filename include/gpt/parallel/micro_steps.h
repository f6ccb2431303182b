// Which micro-batches of an update this process computes, and in which order: one after the other, or in the turns of a stage of the model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "gpt/batches/data_loader.h"
#include "gpt/parallel/stage_passes.h"
#include "gpt/parallel/strategy.h"

namespace gpt::parallel {

// What a train step does for each of them.
class MicroSteps {
 public:
  virtual ~MicroSteps() = default;
  // The loader's next batch becomes the one of this lane. `first_sample`: the number in the update of its first sample.
  virtual void load(batches::DataLoader& loader, size_t lane, int64_t first_sample) = 0;
  // Forward and backward pass of the batch that was loaded. `is_last`: of this process, while the others compute their last ones.
  virtual void accumulate(bool is_last) = 0;
  // Each pass in its turn instead, while others are loaded.
  virtual PassingBatch take_loaded(bool is_last) = 0;
  virtual at::Tensor forward(const PassingBatch& passing, const at::Tensor& in) = 0;
  virtual void backward(const PassingBatch& passing, const at::Tensor& out, const at::Tensor& gradient) = 0;
};

// Computes the loader's next `micro_batches`. `stop` is called between rounds; not where there are stages, which are at different
// micro-batches. It must answer the same in all processes. Returns false where it was true; then the update is to be dropped.
bool compute_micro_batches(MicroSteps& steps, Strategy& strategy, batches::DataLoader& loader, int64_t micro_batches,
                           const std::function<bool()>& stop);

}  // namespace gpt::parallel
