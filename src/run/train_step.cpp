#include "gpt/run/train_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "gpt/core/log.h"
#include "gpt/core/map_faults.h"
#include "gpt/core/seeds.h"
#include "gpt/device/device.h"
#include "gpt/model/compile.h"
#include "gpt/ops/part.h"
#include "gpt/products/tuned_product.h"

namespace gpt::run {
namespace {

// A launch for each micro-batch is saved where nothing changes.
template <class Value>
void fill(const at::Tensor& scalar, std::optional<Value>& known, Value value) {
  if (known != value) scalar.fill_(value);
  known = value;
}

// Another one for every update of a run.
int64_t dropout_key(uint64_t seed, int64_t update) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // of SplitMix64, of whose sequence this is a number
  return static_cast<int64_t>(mix64(seed + kGolden * static_cast<uint64_t>(update)));
}

}  // namespace

TrainStep::TrainStep(const Updated& updated, const LossInputs& inputs, const TrainingConfig& config, Recorder recorder,
                     const parallel::Division& division)
    : updated_(updated),
      inputs_(inputs),
      gradient_clip_(config.optimizer.gradient_clip),
      label_smoothing_(config.label_smoothing),
      loss_chunk_rows_(config.execution.loss_chunk_rows),
      tunes_products_(model::effective_mode(config, updated.model.config(), updated.model.device()).tunes),
      recorder_(std::move(recorder)),
      strategy_(parallel::make_strategy(updated.model, division, config, recorder_.records())),
      verdict_(ops::new_verdict(updated.model.device())) {
  const model::GPT& model = updated_.model;
  if (config.cadence.log_norms) norms_.emplace(model.parameters(), model.config().n_layer, division);
  if (!updated_.counts.skipped.defined()) updated_.counts = ops::no_updates(model.device());
  for (at::Tensor* scalar : {&learning_rate_, &decay_share_, &targets_, &share_})
    *scalar = at::zeros({}, model.device());
  if (model.config().dropout > 0 || config.tuning.lora.dropout > 0)
    dropout_place_ = at::zeros({2}, at::TensorOptions(model.device()).dtype(at::kLong));
  device::reset_memory_peak(model.device());
}

void TrainStep::begin(const optim::ScheduledRates& rates, int64_t targets, int64_t update) {
  strategy_->begin();
  // Not where they change, because that is in several places.
  if (const auto& operators = updated_.model.training_operators()) operators->values_changed();
  fill(targets_, known_targets_, static_cast<double>(targets));
  fill(learning_rate_, known_learning_rate_, rates.learning_rate);
  fill(decay_share_, known_decay_share_, rates.decay_share);
  if (dropout_place_.defined())
    fill(dropout_place_.select(0, 0), known_key_, dropout_key(inputs_.dropout_seed, update));
}

bool TrainStep::compute(batches::DataLoader& loader, int64_t micro_batches, const std::function<bool()>& stop) {
  return parallel::compute_micro_batches(*this, *strategy_, loader, micro_batches, stop);
}

void TrainStep::abandon() { updated_.model.parameters().clear_gradients(); }

void TrainStep::load(batches::DataLoader& loader, size_t lane, int64_t first_sample) {
  strategy_->lanes().use(lane);
  const batches::BatchShape shape = loader.next_shape();
  {
    const ops::InPart part(ops::part::kData);
    loader.next_into(batch(shape));
  }
  map_faults::require_intact();  // before anything is learned from it
  fill(share_, known_share_, static_cast<double>(shape.sequences * shape.length) / *known_targets_);
  if (dropout_place_.defined()) fill(dropout_place_.select(0, 1), known_first_sample_, first_sample);
}

const batches::Batch& TrainStep::batch(const batches::BatchShape& shape) {
  attention_window_ = shape.attention_window;
  batches::Batch& batch = batches_[{shape.sequences, shape.length, shape.has_starts}];
  if (!batch.inputs.defined()) batch = batches::empty_batch(shape, updated_.model.device());
  return batch_ = batch;
}

// The memory of what is on its way is its own.
parallel::PassingBatch TrainStep::take_loaded(bool is_last) {
  batches_.clear();
  return {.batch = std::exchange(batch_, {}),
          .share = share_.clone(),
          .dropout_place = dropout_place_.defined() ? dropout_place_.clone() : at::Tensor(),
          .attention_window = attention_window_,
          .lane = strategy_->lanes().in_use(),
          .is_last = is_last};
}

at::Tensor TrainStep::forward(const parallel::PassingBatch& passing, const at::Tensor& in) {
  parallel::Lanes& lanes = strategy_->lanes();
  lanes.use(passing.lane);
  if (lanes.begin_micro_batch()) lanes.clear();
  const ops::TuneProducts tuning(tunes_products_);
  model::LossOptions options = options_of(passing.batch, passing.dropout_place, passing.attention_window);
  options.ids = passing.batch.inputs;
  options.layer_done = strategy_->layer_done(passing.is_last);
  at::Tensor out;
  if (updated_.model.part().is_last_stage()) {
    options.upstream = updated_.scaler.scale(passing.share);
    out = updated_.model.loss(in, passing.batch.targets, options);
    lanes.loss().add_(out.detach() * passing.share);
  } else {
    out = updated_.model.hidden(in, options);
  }
  note_kept_bytes();
  return out;
}

void TrainStep::backward(const parallel::PassingBatch& passing, const at::Tensor& out, const at::Tensor& gradient) {
  strategy_->lanes().use(passing.lane);
  const ops::TuneProducts tuning(tunes_products_);
  strategy_->begin_backward(passing.is_last);
  out.backward(updated_.model.part().is_last_stage() ? updated_.scaler.scale(passing.share) : gradient);
  strategy_->end_backward();
}

model::LossOptions TrainStep::options_of(const batches::Batch& batch, const at::Tensor& dropout_place,
                                         std::optional<int64_t> attention_window) const {
  return {.label_smoothing = label_smoothing_,
          .chunk_rows = loss_chunk_rows_,
          .dropout_place = dropout_place,
          .attention_window = attention_window,
          .document_starts = batch.starts};
}

// What is recorded tells nobody of layers.
void TrainStep::accumulate(bool is_last) {
  using enum Recorder::Part;
  parallel::Lanes& lanes = strategy_->lanes();
  const bool is_first = lanes.begin_micro_batch(), tells = is_last && !recorder_.records();
  const Recorder::Key key{is_first ? first_micro_batch : later_micro_batch,
                          batch_.inputs.size(0),
                          batch_.inputs.size(1),
                          lanes.in_use(),
                          attention_window_,
                          batch_.starts.defined()};
  if (recorder_.run(key, [this, is_first, tells] { add_micro_batch(is_first, tells); }))
    updated_.model.parameters().mark_gradients();
  strategy_->end_backward();
}

void TrainStep::add_micro_batch(bool is_first, bool is_last) {
  parallel::Lanes& lanes = strategy_->lanes();
  const model::GPT& model = updated_.model;
  if (is_first) lanes.clear();
  const ops::TuneProducts tuning(tunes_products_);
  const at::Tensor upstream = updated_.scaler.scale(share_);
  at::Tensor loss;
  {
    device::Autocast autocast(model.device(), inputs_.precision.autocast_type());
    model::LossOptions options = options_of(batch_, dropout_place_, attention_window_);
    if (inputs_.teacher) options.teacher = inputs_.teacher->about(batch_.inputs, batch_.starts);
    options.upstream = upstream, options.layer_done = strategy_->layer_done(is_last);
    loss = model.loss(batch_.inputs, batch_.targets, options);
  }
  note_kept_bytes();
  lanes.loss().add_(loss.detach() * share_);
  strategy_->begin_backward(is_last);  // before the gradients, so that nobody waits for the loss
  loss.backward(upstream);
}

void TrainStep::note_kept_bytes() {
  if (has_applied_) kept_bytes_ = std::max(kept_bytes_, device::tensor_bytes(updated_.model.device()));
}

void TrainStep::apply() {
  strategy_->sum();
  if (measures_norms_) norms_->before_update(updated_.scaler.scale_value());
  is_applying_ = true;
  const auto update = [this] { this->update(); };
  strategy_->division().speaks_within_updates() ? update() : (void)recorder_.run({Recorder::Part::update}, update);
  if (measures_norms_) norms_->after_update();
  is_applying_ = false;
  if (std::exchange(has_applied_, true) || !tunes_products_) return;
  // The first update has the products of all others, but for those of other shapes, such as a partial batch's.
  if (const ops::Tuning tuning = ops::tuning_so_far(); tuning.products > 0) log::success(ops::to_text(tuning));
  device::reset_memory_peak(updated_.model.device());  // measuring took more than a step does
}

void TrainStep::update() {
  const ops::InPart part(ops::part::kOptimizer);
  at::NoGradGuard no_grad;
  const at::Tensor norm = strategy_->norm();
  optim::GradScaler& scaler = updated_.scaler;
  ops::judge({loss(), norm, scaler.scale_value(), targets_}, gradient_clip_, verdict_, updated_.counts, updated_.watch);
  updated_.optimizer.step({learning_rate_, decay_share_, verdict_.divisor, verdict_.skipped});
  // The scaler reacts only to the overflows that its scale can cure: those in the gradients.
  scaler.update(verdict_.grad_norm);
  strategy_->values_changed();
}

std::optional<int64_t> run_update(TrainStep& step, batches::DataLoader& loader, int64_t micro_batches,
                                  const optim::ScheduledRates& rates, int64_t update,
                                  const std::function<bool()>& stop) {
  const int64_t tokens = loader.tokens_ahead(micro_batches), targets = loader.learned_ahead(micro_batches);
  step.begin(rates, targets, update);
  if (!step.compute(loader, micro_batches, stop)) return step.abandon(), std::nullopt;
  step.apply();
  return tokens;
}

}  // namespace gpt::run
