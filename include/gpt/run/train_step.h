// The two bodies of an update: accumulate() for each micro-batch, apply() for the parameters. Neither reads the device: what
// changes between updates (batch, learning rate, the micro-batch's share of the loss, what dropout masks follow from) is a tensor
// that is set before, in memory that stays, and loss, norm and the skip flag stay tensors until a log line asks for them. So a
// recorder can replay them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "gpt/batches/data_loader.h"
#include "gpt/config/training_config.h"
#include "gpt/device/precision.h"
#include "gpt/model/gpt.h"
#include "gpt/ops/verdict.h"
#include "gpt/optim/grad_scaler.h"
#include "gpt/optim/optimizer.h"
#include "gpt/parallel/divided_gradients.h"
#include "gpt/parallel/division.h"
#include "gpt/parallel/pipeline_schedule.h"
#include "gpt/parallel/reducer.h"
#include "gpt/parallel/stage_passes.h"
#include "gpt/run/recorder.h"
#include "gpt/run/teacher.h"

namespace gpt::run {

class TrainStep {
 public:
  // The recorder is one for `config` and the model, or one that records nothing. The updates are counted in `counts`; undefined: in
  // new ones. Dropout masks follow from `dropout_seed`, the number of the update and that of the sample in it. `watch`: tells spikes,
  // whose updates are not applied. `teacher`: whom the loss takes a part from, or null; it must outlive the step.
  TrainStep(GPT& model, Optimizer& optimizer, GradScaler& scaler, const Precision& precision,
            const TrainingConfig& config, Recorder recorder = Recorder(), ops::UpdateCounts counts = {},
            uint64_t dropout_seed = 0, parallel::Division division = {}, ops::SpikeWatch watch = {},
            const Teacher* teacher = nullptr);

  // An update begins in which so many targets count: nothing is accumulated yet. `update`: its number in the run.
  void begin(double learning_rate, int64_t tokens, int64_t update);
  // The tensors (B, T) that the next accumulate() reads, or come() takes, for the caller to fill.
  const Batch& batch(const BatchShape& shape);
  // Of the micro-batch: its positions over the targets of the update that count, which makes of the mean over its positions its part of
  // the mean over those targets; and the number in the update of its first sample.
  void set_micro_batch(double share, int64_t first_sample);
  void set_lane(size_t lane);  // in which it is added up
  // Where this process has a stage of the model, micro-batches take turns instead of accumulate(). What is set above is this one's, which
  // takes its forward turn after the next one or sooner. `is_last`: of the update in this process.
  void come(bool is_last);
  void expect_gradient() { passes_->expect_gradient(); }  // for the next backward turn
  void take(parallel::Pass turn);

  // Forward and backward of one micro-batch. `is_last`: of this process, while the others compute their last ones, so that gradients can be
  // sent as they are completed.
  void accumulate(bool is_last = false);
  void apply();  // sum over lanes and processes, clip and optimizer, unless loss or gradients are not finite or a spike
  void abandon();  // instead of apply(): what was accumulated is dropped
  // Where other processes compute a pass of a micro-batch and this one has none: takes part in what they send.
  void join(parallel::Pass turn);

  // An update has begun to change the parameters and has not ended: they are between two states.
  bool is_applying() const { return is_applying_; }

  // The most that tensors took after a forward pass, since the first update found all buffers; 0: not known.
  int64_t kept_bytes() const { return kept_bytes_; }
  int64_t gradient_bytes() const;  // of all lanes of this process, or of what it has of the sums
  const Teacher* teacher() const { return teacher_; }
  const parallel::Division& division() const { return division_; }
  bool is_recorded() const { return recorder_.records(); }  // false once recording has failed
  bool recording_failed() const { return recorder_.has_failed(); }

  // Results of the last update: float32 scalars on the device, overwritten by the next.
  const at::Tensor& loss() const { return losses_[0]; }               // mean over all its targets that count
  const at::Tensor& grad_norm() const { return verdict_.grad_norm; }  // before clipping
  // 1 when loss or gradients were not finite or a spike: nothing was changed.
  const at::Tensor& skipped() const { return verdict_.skipped; }
  std::optional<ops::Spike> spike() const { return ops::spike_of(verdict_); }  // sync: reads the device

 private:
  LossOptions options_of(const Batch& batch, const at::Tensor& dropout_place,
                         std::optional<int64_t> attention_window) const;
  void add_micro_batch(bool is_first, const std::function<void(int64_t layer)>& layer_done);
  at::Tensor forward(const parallel::PassingBatch& passing, const at::Tensor& in);
  void backward(const parallel::PassingBatch& passing, const at::Tensor& out, const at::Tensor& gradient);
  void begin_sums();
  void add_losses();
  void sum_up();
  void update();

  GPT& model_;
  Optimizer& optimizer_;
  GradScaler& scaler_;
  at::ScalarType autocast_type_;
  double gradient_clip_, label_smoothing_;
  int64_t loss_chunk_rows_;
  bool tunes_products_;
  Recorder recorder_;
  // A batch for each shape so far, because what is recorded reads the same memory each time; and the one that comes next.
  std::map<std::tuple<int64_t, int64_t, bool>, Batch> batches_;
  Batch batch_;
  std::optional<int64_t> attention_window_;  // for this batch, where it is not the model's
  parallel::Division division_;
  parallel::Reducer reducer_;
  std::optional<parallel::DividedGradients> divided_;  // ZeRO 2
  std::optional<parallel::StagePasses> passes_;        // of a stage
  bool sends_early_;                                   // gradients, while later ones are computed
  bool is_summing_ = false;
  size_t lane_ = 0;
  std::vector<bool> has_accumulated_;  // by lane
  bool has_applied_ = false, is_applying_ = false;
  int64_t kept_bytes_ = 0;
  // Float32 scalars on the device, and what the first three hold.
  at::Tensor learning_rate_, tokens_, share_;
  std::optional<double> known_learning_rate_, known_tokens_, known_share_;
  std::vector<at::Tensor> losses_;  // float32 scalars on the device, by lane
  uint64_t dropout_seed_;
  // The key of the update and the first sample, as ops::DropoutSpec has them, and what they hold. Undefined without dropout.
  at::Tensor dropout_place_;
  std::optional<int64_t> known_key_, known_first_sample_;
  ops::Verdict verdict_;
  ops::UpdateCounts counts_;
  ops::SpikeWatch watch_;
  const Teacher* teacher_;
};

// The update of this number, of `micro_batches` batches from `loader`, of which this process computes its own, each weighted by its share
// of the update's targets that count. Returns how many positions it has. `stop` is called between micro-batches, or where several processes compute them at the
// same time, between those; not where these are stages of the model, which are at different ones. It must answer the same in all processes.
// When it returns true the gradients are dropped and there is no result: the caller puts loader and random state back to where the update
// began. Throws gpt::Error(data) if the token file was truncated in the meantime.
std::optional<int64_t> run_update(TrainStep& step, DataLoader& loader, int64_t micro_batches, double learning_rate,
                                  int64_t update, const std::function<bool()>& stop);

}  // namespace gpt::run
