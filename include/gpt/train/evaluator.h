// Validation loss: the token-weighted mean over the split (or its first batches), without dropout, label smoothing or
// gradients, in the precision of the training.
#pragma once

#include <cstdint>
#include <functional>

#include "gpt/data/data_loader.h"
#include "gpt/device/precision.h"
#include "gpt/model/gpt.h"

namespace gpt {

class Evaluator {
 public:
  // eval_batches 0 = the whole split.
  Evaluator(Tokens validation, int64_t batch_size, int64_t block_size, int64_t eval_batches, at::Device device,
            const Precision& precision);

  bool empty() const { return batches_.size() == 0; }
  // Mean cross entropy in nats. `stop` is asked between batches; NaN when it said so.
  double run(GPT& model, const std::function<bool()>& stop) const;

 private:
  SequentialBatches batches_;
  int64_t count_;
  at::Device device_;
  at::ScalarType compute_type_;
};

}  // namespace gpt
