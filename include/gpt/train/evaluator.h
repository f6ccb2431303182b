// Validation loss: the token-weighted mean over the split (or its first batches), without dropout, label smoothing or
// gradients, in the precision of the training. Bits per byte make tokenizers comparable: the loss of all these tokens over
// the bytes of their text. End-of-text costs bits, as the model has to foresee it, but has no bytes.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>

#include "gpt/data/corpus.h"
#include "gpt/data/data_loader.h"
#include "gpt/device/precision.h"
#include "gpt/model/gpt.h"

namespace gpt {

struct Evaluation {
  double loss = 0;                      // mean cross entropy in nats; NaN when it was stopped
  std::optional<double> bits_per_byte;  // nothing where the bytes are not known
  double perplexity() const { return std::exp(loss); }
};

class Evaluator {
 public:
  // eval_batches 0 = the whole split.
  Evaluator(const Corpus& corpus, int64_t batch_size, int64_t block_size, int64_t eval_batches, at::Device device,
            const Precision& precision);

  bool empty() const { return batches_.size() == 0; }
  bool knows_bytes() const { return bytes_.has_value(); }
  // `stop` is asked between batches.
  Evaluation run(GPT& model, const std::function<bool()>& stop) const;

 private:
  SequentialBatches batches_;
  int64_t count_;
  std::optional<double> bytes_;  // of the text of the tokens that are foreseen
  at::Device device_;
  at::ScalarType compute_type_;
};

}  // namespace gpt
