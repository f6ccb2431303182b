// Validation loss: the token-weighted mean over the split, or over batches spread evenly through it, without dropout, label
// smoothing or gradients, in the precision of the training. Bits per byte make tokenizers comparable: the loss of these tokens
// over the bytes of their text. End-of-text costs bits, as the model has to predict it, but has no bytes.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>

#include "gpt/config/training_config.h"
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

// Sequences that training.eval_batches: auto takes, so that the loss has a standard error below half a per cent. The mean
// loss of a sequence of T tokens varies between sequences by a tenth of the loss, as texts differ, and by 1.1 / sqrt(T) of
// it, as tokens do: (0.01 + 1.2 / T) / 0.005^2.
int64_t automatic_eval_sequences(int64_t block_size);

// Tokens that one evaluation predicts on a split of `validation_tokens`.
int64_t evaluation_tokens(const TrainingConfig& training, int64_t block_size, int64_t validation_tokens);

// What an evaluation of `tokens` costs in updates of `training`: the forward and backward pass of a token cost three times as
// much as its forward pass alone.
double evaluation_steps(const TrainingConfig& training, int64_t block_size, int64_t tokens);

class Evaluator {
 public:
  // `eval_batches`: nothing = automatic_eval_sequences(), 0 = the whole split.
  Evaluator(const Corpus& corpus, int64_t batch_size, int64_t block_size, std::optional<int64_t> eval_batches,
            at::Device device, const Precision& precision);

  bool empty() const { return batches_.size() == 0; }
  bool knows_bytes() const { return bytes_.has_value(); }
  int64_t tokens() const { return tokens_; }  // predicted per evaluation
  // `stop` is called between batches with the share of them that is done.
  Evaluation run(GPT& model, const std::function<bool(double share)>& stop) const;

 private:
  int64_t batch_index(int64_t i) const { return i * batches_.size() / count_; }

  SequentialBatches batches_;
  int64_t count_;  // batches of an evaluation
  int64_t tokens_ = 0;
  std::optional<double> bytes_;  // of the text of the tokens that are predicted
  at::Device device_;
  at::ScalarType autocast_type_;
};

}  // namespace gpt
