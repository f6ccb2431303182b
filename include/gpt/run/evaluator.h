// Validation loss: the mean over the targets that count of the split, or over single sequences drawn from all of it, without dropout, label
// smoothing or gradients, in the precision of the training. Bits per byte make tokenizers comparable: the loss of these tokens
// over the bytes of their text. End-of-text costs bits, as the model has to predict it, but has no bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gpt/batches/data_loader.h"
#include "gpt/config/training_config.h"
#include "gpt/data/corpus.h"
#include "gpt/data/permutation.h"
#include "gpt/device/precision.h"
#include "gpt/distributed/communicator.h"
#include "gpt/model/gpt.h"

namespace gpt::run {

struct Evaluation {
  double loss = 0;  // mean cross entropy in nats; NaN when it was stopped
  // The standard error of that mean for the whole split, estimated from the losses of the sequences, which are a random sample of the
  // split's. Nothing where the whole split was read, or where neighbouring sequences were.
  std::optional<double> standard_error = {};
  std::optional<double> bits_per_byte = {};  // nothing where the bytes are not known
  int64_t sequences = 0, tokens = 0;         // sequences, and their targets that count
  double perplexity() const { return std::exp(loss); }
};

// Which sequences an evaluation takes: all of them, or always the same ones of an order that is random and the same for every run.
// As many as eval_batches says; or, where that is auto, as the first evaluation of the run needed for a standard error below half
// a per cent of the loss.
struct EvaluationRule {
  std::optional<int64_t> eval_batches = {};  // training.eval_batches; 0: the whole split
  int64_t sequences = 0;                     // where it is auto, those of the first evaluation; 0: this is the first
  std::optional<int64_t> most = {};          // and at most so many
  bool takes_neighbours = false;             // as older programs did: whole batches of consecutive sequences
  bool packing = true;                       // data.packing
};

// About how many sequences of T tokens that is, before a run has found it out: their mean losses vary by a tenth of the loss, as
// texts differ, and by 1.1 / sqrt(T) of it, as tokens do: (0.01 + 1.2 / T) / 0.005^2.
int64_t automatic_eval_sequences(int64_t block_size);

// With training.max_time, the most sequences that an evaluation with eval_batches: auto takes, so that it costs a hundredth of the
// `planned_steps`; nothing without it.
std::optional<int64_t> most_eval_sequences(const TrainingConfig& training, int64_t planned_steps);

// Tokens that one evaluation predicts on a split of `validation_tokens`; where eval_batches is auto, about. `most`: sequences, as above.
int64_t evaluation_tokens(const TrainingConfig& training, int64_t block_size, int64_t validation_tokens,
                          std::optional<int64_t> most = {});

// What an evaluation of `tokens` costs in updates of `training`: the forward and backward pass of a token cost three times as
// much as its forward pass alone.
double evaluation_steps(const TrainingConfig& training, int64_t block_size, int64_t tokens);

class Evaluator {
 public:
  // The corpus must outlive it. `batch`: the shape of a full one. Each of the processes computes its share of the batches, or a stage of the
  // model for them.
  Evaluator(const data::Corpus& corpus, const batches::BatchShape& batch, const EvaluationRule& rule, at::Device device,
            const device::Precision& precision, const distributed::Mesh& mesh = distributed::no_mesh());

  bool empty() const { return windows_.targets() == 0; }
  bool knows_bytes() const;
  // `stop` is called between batches, or between those that several processes compute at the same time, with the share of them that is
  // done; it must answer the same in all processes.
  Evaluation run(model::GPT& model, const std::function<bool(double share)>& stop);

 private:
  void draw(int64_t sequences);  // so many of them in all
  void take_neighbours(int64_t batches);
  void read_in_order();
  bool is_whole() const { return std::ssize(chosen_) == windows_.size(); }
  at::Tensor sums(model::GPT& model, const batches::Batch& batch) const;  // (B) float64: each sequence's sum of losses
  double sum_of_rest(model::GPT& model) const;
  bool is_own(int64_t batch) const { return batch % ranks_->size() == ranks_->rank(); }
  std::vector<int64_t> counts() const;  // of each chosen sequence, in the order of its batches: targets that count
  bool settle(const at::Tensor& sums);  // false: more sequences have been drawn
  std::optional<double> bytes();        // bytes of the text of the tokens that are predicted

  const data::Corpus& corpus_;
  batches::SplitWindows windows_;
  data::Permutation order_;
  int64_t batch_size_;
  std::vector<int64_t> chosen_;  // windows
  int64_t most_;                 // sequences
  bool is_settled_ = false, takes_neighbours_;
  std::optional<double> bytes_;  // once it is settled
  at::Device device_;
  at::ScalarType autocast_type_;
  std::shared_ptr<distributed::Communicator> ranks_, stages_;
};

}  // namespace gpt::run
