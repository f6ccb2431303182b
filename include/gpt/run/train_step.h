// The two bodies of an update: accumulate() for each micro-batch, apply() for the parameters. Neither reads the device: what
// changes between updates (batch, learning rate, the micro-batch's share of the loss, what dropout masks follow from) is a tensor
// that is set before, in memory that stays, and loss, norm and the skip flag stay tensors until a log line asks for them. So a
// recorder can replay them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "gpt/batches/data_loader.h"
#include "gpt/config/training_config.h"
#include "gpt/device/precision.h"
#include "gpt/model/gpt.h"
#include "gpt/ops/verdict.h"
#include "gpt/optim/grad_scaler.h"
#include "gpt/optim/optimizer.h"
#include "gpt/optim/weight_decay_schedule.h"
#include "gpt/parallel/division.h"
#include "gpt/parallel/micro_steps.h"
#include "gpt/parallel/strategy.h"
#include "gpt/parallel/update_norms.h"
#include "gpt/run/recorder.h"
#include "gpt/run/teacher.h"

namespace gpt::run {

// What an update changes, and what it counts in.
struct Updated {
  model::GPT& model;
  optim::Optimizer& optimizer;
  optim::GradScaler& scaler;
  ops::UpdateCounts counts = {};  // undefined: new ones
  ops::SpikeWatch watch = {};     // tells spikes, whose updates are not applied
};

// What the loss of a batch follows from besides.
struct LossInputs {
  device::Precision precision = {};
  uint64_t dropout_seed = 0;         // masks follow from it, the number of the update and that of the sample in it
  const Teacher* teacher = nullptr;  // whom the loss takes a part from, or null
};

class TrainStep : private parallel::MicroSteps {
 public:
  // The recorder is one for `config` and the model, or one that records nothing. Model, optimizer, scaler and teacher must outlive the step.
  TrainStep(const Updated& updated, const LossInputs& inputs, const TrainingConfig& config,
            Recorder recorder = Recorder(), const parallel::Division& division = {});

  // An update begins in which so many targets count: nothing is accumulated yet. `update`: its number in the run.
  void begin(const optim::ScheduledRates& rates, int64_t targets, int64_t update);
  // Forward and backward of what this process computes of the loader's next micro-batches; as run_update() has it.
  bool compute(batches::DataLoader& loader, int64_t micro_batches, const std::function<bool()>& stop);
  void apply();  // sum over lanes and processes, clip and optimizer, unless loss or gradients are not finite or a spike
  void abandon();  // instead of apply(): what was accumulated is dropped
  // Whether the next updates are, from layer to layer; without training.log_norms none is.
  void measure_norms(bool is_wanted) { measures_norms_ = is_wanted && norms_.has_value(); }

  // An update has begun to change the parameters and has not ended: they are between two states.
  bool is_applying() const { return is_applying_; }

  // The most that tensors took after a forward pass, since the first update found all buffers; 0: not known.
  int64_t kept_bytes() const { return kept_bytes_; }
  // Bytes of the gradients of all lanes of this process, or of what it has of the sums.
  int64_t gradient_bytes() const { return strategy_->gradient_bytes(); }
  const Teacher* teacher() const { return inputs_.teacher; }
  bool is_recorded() const { return recorder_.records(); }  // false once recording has failed
  bool recording_failed() const { return recorder_.has_failed(); }

  // Results of the last update: float32 scalars on the device, overwritten by the next.
  const at::Tensor& loss() const { return strategy_->loss(); }        // mean over all its targets that count
  const at::Tensor& grad_norm() const { return verdict_.grad_norm; }  // before clipping
  // 1 when loss or gradients were not finite or a spike: nothing was changed.
  const at::Tensor& skipped() const { return verdict_.skipped; }
  // Norms of the last update, where it was measured; all processes ask. sync: reads the device
  std::optional<report::LayerNorms> norms() const {
    return measures_norms_ ? std::optional(norms_->read()) : std::nullopt;
  }
  std::optional<ops::Spike> spike() const { return ops::spike_of(verdict_); }  // sync: reads the device

 private:
  void load(batches::DataLoader& loader, size_t lane, int64_t first_sample) override;
  void accumulate(bool is_last) override;
  parallel::PassingBatch take_loaded(bool is_last) override;
  at::Tensor forward(const parallel::PassingBatch& passing, const at::Tensor& in) override;
  void backward(const parallel::PassingBatch& passing, const at::Tensor& out, const at::Tensor& gradient) override;

  const batches::Batch& batch(const batches::BatchShape& shape);
  model::LossOptions options_of(const batches::Batch& batch, const at::Tensor& dropout_place,
                                std::optional<int64_t> attention_window) const;
  void add_micro_batch(bool is_first, bool is_last);
  void note_kept_bytes();
  void update();

  Updated updated_;
  LossInputs inputs_;
  double gradient_clip_, label_smoothing_;
  int64_t loss_chunk_rows_;
  bool tunes_products_;
  Recorder recorder_;
  std::unique_ptr<parallel::Strategy> strategy_;
  std::optional<parallel::UpdateNorms> norms_;
  bool measures_norms_ = false;
  // A batch for each shape so far, because what is recorded reads the same memory each time; and the one that comes next.
  std::map<std::tuple<int64_t, int64_t, bool>, batches::Batch> batches_;
  batches::Batch batch_;
  std::optional<int64_t> attention_window_;  // for this batch, where it is not the model's
  bool has_applied_ = false, is_applying_ = false;
  int64_t kept_bytes_ = 0;
  // Float32 scalars on the device, and what they hold. `share`: the positions of the micro-batch over the targets of the update that count,
  // which makes of the mean over its positions its part of the mean over those targets.
  at::Tensor learning_rate_, decay_share_, targets_, share_;
  std::optional<double> known_learning_rate_, known_decay_share_, known_targets_, known_share_;
  // The key of the update and the first sample, as ops::DropoutSpec has them, and what they hold. Undefined without dropout.
  at::Tensor dropout_place_;
  std::optional<int64_t> known_key_, known_first_sample_;
  ops::Verdict verdict_;
};

// The update of this number, of `micro_batches` batches from `loader`, of which this process computes its own, each weighted by its share
// of the update's targets that count. Returns how many positions it has. `stop` is called between micro-batches, as
// parallel::compute_micro_batches() has it. When it returns true the gradients are dropped and there is no result: the caller puts loader and
// random state back to where the update began. Throws gpt::Error(data) if the token file was truncated in the meantime.
std::optional<int64_t> run_update(TrainStep& step, batches::DataLoader& loader, int64_t micro_batches,
                                  const optim::ScheduledRates& rates, int64_t update,
                                  const std::function<bool()>& stop);

}  // namespace gpt::run
