#include "gpt/run/train_step.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "gpt/core/log.h"
#include "gpt/core/map_faults.h"
#include "gpt/core/seeds.h"
#include "gpt/device/device.h"
#include "gpt/model/compile.h"
#include "gpt/ops/part.h"
#include "gpt/parallel/arriving_weights.h"
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

TrainStep::TrainStep(GPT& model, Optimizer& optimizer, GradScaler& scaler, const Precision& precision,
                     const TrainingConfig& config, Recorder recorder, ops::UpdateCounts counts, uint64_t dropout_seed,
                     parallel::Division division, ops::SpikeWatch watch, const Teacher* teacher)
    : model_(model),
      optimizer_(optimizer),
      scaler_(scaler),
      autocast_type_(precision.autocast_type()),
      gradient_clip_(config.optimizer.gradient_clip),
      label_smoothing_(config.label_smoothing),
      loss_chunk_rows_(config.execution.loss_chunk_rows),
      tunes_products_(effective_mode(config, model.config(), model.device()).tunes),
      recorder_(std::move(recorder)),
      division_(std::move(division)),
      reducer_(model.config(), config.freeze, model.parameters(), division_),
      // LibTorch's operators do not tell when a layer is done.
      sends_early_(division_.ranks->size() > 1 && config.execution.use_compile),
      has_accumulated_(static_cast<size_t>(division_.own_lanes())),
      dropout_seed_(dropout_seed),
      verdict_(ops::new_verdict(model.device())),
      counts_(counts.skipped.defined() ? std::move(counts) : ops::no_updates(model.device())),
      watch_(std::move(watch)),
      teacher_(teacher) {
  for (at::Tensor* scalar : {&learning_rate_, &tokens_, &share_}) *scalar = at::zeros({}, model.device());
  for (size_t i = 0; i < has_accumulated_.size(); ++i) losses_.push_back(at::zeros({}, model.device()));
  if (division_.divides_gradients && model.parameters().layout().trained_size > 0)
    divided_.emplace(model.parameters(), division_);
  if (division_.divides_state && !division_.divides_weights)  // ZeRO 3 has come with the model
    model_.set_layer_weights(std::make_shared<parallel::ArrivingWeights>(model, division_, /*overlaps=*/sends_early_ &&
                                                                                               !recorder_.records()));
  if (division_.has_stages()) passes_.emplace(model, division_.pipeline);
  if (model.config().dropout > 0) dropout_place_ = at::zeros({2}, at::TensorOptions(model.device()).dtype(at::kLong));
  reset_memory_peak(model.device());
}

void TrainStep::begin(double learning_rate, int64_t tokens, int64_t update) {
  has_accumulated_.assign(has_accumulated_.size(), false);
  if (divided_) divided_->begin_update();
  // Not where they change, because that is in several places.
  if (const auto& operators = model_.training_operators()) operators->values_changed();
  fill(tokens_, known_tokens_, static_cast<double>(tokens));
  fill(learning_rate_, known_learning_rate_, learning_rate);
  if (dropout_place_.defined()) fill(dropout_place_.select(0, 0), known_key_, dropout_key(dropout_seed_, update));
}

const Batch& TrainStep::batch(const BatchShape& shape) {
  attention_window_ = shape.attention_window;
  if (passes_) batches_.clear();  // the ones before are on their way
  Batch& batch = batches_[{shape.sequences, shape.length, shape.has_starts}];
  if (!batch.inputs.defined()) batch = empty_batch(shape, model_.device());
  return batch_ = batch;
}

void TrainStep::abandon() { model_.parameters().clear_gradients(); }

void TrainStep::set_micro_batch(double share, int64_t first_sample) {
  fill(share_, known_share_, share);
  if (dropout_place_.defined()) fill(dropout_place_.select(0, 1), known_first_sample_, first_sample);
}

int64_t TrainStep::gradient_bytes() const {
  if (divided_) return divided_->bytes();
  const Parameters& parameters = model_.parameters();
  const auto of_each = static_cast<int64_t>(c10::elementSize(parameters[0].gradient_type()));
  return std::ssize(has_accumulated_) * parameters.layout().trained_size * of_each;
}

void TrainStep::set_lane(size_t lane) {
  lane_ = lane;
  if (!divided_) model_.parameters().use_lane(lane);
}

void TrainStep::come(bool is_last) {
  passes_->come({.batch = batch_,
                 .share = share_.clone(),
                 .dropout_place = dropout_place_.defined() ? dropout_place_.clone() : at::Tensor(),
                 .attention_window = attention_window_,
                 .lane = lane_,
                 .is_last = is_last});
}

void TrainStep::take(parallel::Pass turn) {
  if (turn == parallel::Pass::forward)
    return passes_->forward([this](const auto& passing, const auto& in) { return forward(passing, in); });
  passes_->backward(
      [this](const auto& passing, const auto& out, const auto& gradient) { backward(passing, out, gradient); });
}

at::Tensor TrainStep::forward(const parallel::PassingBatch& passing, const at::Tensor& in) {
  set_lane(passing.lane);
  if (!has_accumulated_[lane_]) model_.parameters().clear_gradients(), losses_[lane_].zero_();
  has_accumulated_[lane_] = true;
  const ops::TuneProducts tuning(tunes_products_);
  LossOptions options = options_of(passing.batch, passing.dropout_place, passing.attention_window);
  options.ids = passing.batch.inputs;
  if (divided_)
    options.layer_done = [this](int64_t layer) { divided_->layer_done(layer); };
  else if (passing.is_last && sends_early_)
    options.layer_done = [this](int64_t layer) { reducer_.layer_done(layer); };
  at::Tensor out;
  if (division_.pipeline.is_last()) {
    options.upstream = scaler_.scale(passing.share);
    out = model_.loss(in, passing.batch.targets, options);
    losses_[lane_].add_(out.detach() * passing.share);
  } else {
    out = model_.hidden(in, options);
  }
  if (has_applied_) kept_bytes_ = std::max(kept_bytes_, tensor_bytes(model_.device()));
  return out;
}

void TrainStep::backward(const parallel::PassingBatch& passing, const at::Tensor& out, const at::Tensor& gradient) {
  set_lane(passing.lane);
  if (!divided_ && passing.is_last && sends_early_) begin_sums(), add_losses();
  out.backward(division_.pipeline.is_last() ? scaler_.scale(passing.share) : gradient);
  if (divided_) divided_->end_round(/*has_gradients=*/true);
}

LossOptions TrainStep::options_of(const Batch& batch, const at::Tensor& dropout_place,
                                  std::optional<int64_t> attention_window) const {
  return {.label_smoothing = label_smoothing_,
          .chunk_rows = loss_chunk_rows_,
          .dropout_place = dropout_place,
          .attention_window = attention_window,
          .document_starts = batch.starts};
}

void TrainStep::accumulate(bool is_last) {
  using enum Recorder::Part;
  const bool is_first = !has_accumulated_[lane_];
  has_accumulated_[lane_] = true;
  if (divided_) {
    add_micro_batch(is_first, [this](int64_t layer) { divided_->layer_done(layer); });
    return divided_->end_round(/*has_gradients=*/true);
  }
  std::function<void(int64_t layer)> layer_done;
  if (is_last && sends_early_ && !recorder_.records()) {
    begin_sums();
    layer_done = [this](int64_t layer) { reducer_.layer_done(layer); };
  }
  const Recorder::Key key{is_first ? first_micro_batch : later_micro_batch,
                          batch_.inputs.size(0),
                          batch_.inputs.size(1),
                          lane_,
                          attention_window_,
                          batch_.starts.defined()};
  const bool was_replayed = recorder_.run(key, [this, is_first, layer_done] { add_micro_batch(is_first, layer_done); });
  if (was_replayed) model_.parameters().mark_gradients();
}

void TrainStep::join(parallel::Pass turn) {
  if (!divided_) return;
  const auto& weights = model_.layer_weights();
  if (turn == parallel::Pass::forward) return weights->join_forward();
  if (division_.divides_weights) {
    const auto passed =
        weights->in_backward([this](int64_t layer) { divided_->layer_done(layer, /*has_gradients=*/false); });
    for (int64_t layer = model_.layers().end; layer >= model_.layers().begin; --layer) passed(layer);
  }
  divided_->end_round(/*has_gradients=*/false);
}

void TrainStep::add_micro_batch(bool is_first, const std::function<void(int64_t layer)>& layer_done) {
  if (is_first) model_.parameters().clear_gradients(), losses_[lane_].zero_();
  const ops::TuneProducts tuning(tunes_products_);
  const at::Tensor upstream = scaler_.scale(share_);
  at::Tensor loss;
  {
    Autocast autocast(model_.device(), autocast_type_);
    LossOptions options = options_of(batch_, dropout_place_, attention_window_);
    if (teacher_) options.teacher = teacher_->about(batch_.inputs, batch_.starts);
    options.upstream = upstream, options.layer_done = layer_done;
    loss = model_.loss(batch_.inputs, batch_.targets, options);
  }
  if (has_applied_) kept_bytes_ = std::max(kept_bytes_, tensor_bytes(model_.device()));
  losses_[lane_].add_(loss.detach() * share_);
  if (is_summing_) add_losses();  // before the gradients, so that nobody waits for it
  loss.backward(upstream);
}

// A lane without a micro-batch counts as zeros, whichever process has it.
void TrainStep::begin_sums() {
  is_summing_ = true;
  reducer_.begin(has_accumulated_);
}

// The sum of all lanes, the processes' too, into the first.
void TrainStep::sum_up() {
  if (passes_) passes_->end_update();
  if (divided_) {
    divided_->finish();
    add_losses();
  } else {
    if (!std::exchange(is_summing_, false)) reducer_.begin(has_accumulated_), add_losses();
    reducer_.finish();
  }
  lane_ = 0;
}

// Of all lanes into the first, and of all processes, unless it travels with the norms.
void TrainStep::add_losses() {
  for (size_t lane = 0; lane < losses_.size(); ++lane)
    if (!has_accumulated_[lane]) losses_[lane].zero_();
  distributed::in_pairs(std::ssize(losses_), [this](int64_t kept, int64_t count) {
    for (int64_t lane = 0; lane < count; ++lane)
      losses_[static_cast<size_t>(lane)].add_(losses_[static_cast<size_t>(kept + lane)]);
  });
  if (!division_.divides_state) division_.ranks->begin_sum(losses_[0], at::kFloat);
}

void TrainStep::apply() {
  sum_up();
  is_applying_ = true;
  if (division_.divides_state) {
    update();  // is not recorded, because processes speak to each other in it
  } else {
    recorder_.run({Recorder::Part::update}, [this] { update(); });
  }
  is_applying_ = false;
  if (std::exchange(has_applied_, true) || !tunes_products_) return;
  // The first update has the products of all others, but for those of other shapes, such as a partial batch's.
  if (const ops::Tuning tuning = ops::tuning_so_far(); tuning.products > 0) log::success(ops::to_text(tuning));
  reset_memory_peak(model_.device());  // measuring took more than a step does
}

void TrainStep::update() {
  const InPart part(part::kOptimizer);
  at::NoGradGuard no_grad;
  const at::Tensor norm = reducer_.norm(losses_[0]);
  ops::judge({losses_[0], norm, scaler_.scale_value(), tokens_}, gradient_clip_, verdict_, counts_, watch_);
  optimizer_.step(learning_rate_, verdict_.divisor, verdict_.skipped);
  // The scaler reacts only to the overflows that its scale can cure: those in the gradients.
  scaler_.update(verdict_.grad_norm);
  reducer_.make_table_equal();
  if (model_.layer_weights()) model_.layer_weights()->values_changed();
}

namespace {

// The batch that comes next, into the step. `targets`: how many count in the update; `samples`: how many were before it there.
void load_batch(TrainStep& step, DataLoader& loader, int64_t targets, int64_t samples) {
  const BatchShape shape = loader.next_shape();
  {
    const InPart part(part::kData);
    loader.next_into(step.batch(shape));
  }
  map_faults::require_intact();  // before anything is learned from it
  step.set_micro_batch(static_cast<double>(shape.sequences * shape.length) / static_cast<double>(targets), samples);
}

// Stages take the turns of their schedule; while one computes, what it needs for the next one arrives. Those that divide weights take turns
// together: a process whose pipeline has no micro-batch in a turn takes part in what the others send.
void take_turns(TrainStep& step, DataLoader& loader, int64_t micro_batches, int64_t targets) {
  const parallel::Division& division = step.division();
  const distributed::Communicator &ranks = *division.ranks, &stages = *division.pipeline.stages;
  const int64_t own = (micro_batches - ranks.rank() + ranks.size() - 1) / ranks.size();
  int64_t before = 0, samples = 0;  // micro-batches that have come, whichever process computes them, and their samples
  const auto count_next = [&] {
    ++before;
    return std::exchange(samples, samples + loader.next_shape().sequences);
  };
  const auto skip_others = [&] {
    while (before < micro_batches && !loader.next_is_own()) (void)count_next(), loader.skip();
  };
  const auto prepare = [&](const parallel::Turn& turn) {
    if (turn.micro_batch >= own) return;
    if (turn.pass == parallel::Pass::backward) return step.expect_gradient();
    skip_others();
    step.set_lane(division.lane_of(before));
    load_batch(step, loader, targets, count_next());
    step.come(/*is_last=*/turn.micro_batch == own - 1);
  };
  const int64_t of_busiest = at::divup(micro_batches, ranks.size());
  const std::vector<parallel::Turn> turns =
      parallel::pipeline_schedule(stages.rank(), stages.size(), division.divides_weights ? of_busiest : own);
  for (size_t i = 0; i < turns.size(); ++i) {
    if (i == 0) prepare(turns[i]);
    if (i + 1 < turns.size()) prepare(turns[i + 1]);
    turns[i].micro_batch < own ? step.take(turns[i].pass) : step.join(turns[i].pass);
  }
  skip_others();
}

// One after the other; false where it was stopped.
bool accumulate(TrainStep& step, DataLoader& loader, int64_t micro_batches, int64_t targets,
                const std::function<bool()>& stop) {
  const parallel::Division& division = step.division();
  int64_t samples = 0;  // of the micro-batches before, whichever process computes them
  for (int64_t i = 0; i < micro_batches; ++i) {
    if (i > 0 && i % division.ranks->size() == 0 && stop()) return false;
    const int64_t first_sample = std::exchange(samples, samples + loader.next_shape().sequences);
    if (!loader.next_is_own()) {
      loader.skip();
      continue;
    }
    step.set_lane(division.lane_of(i));
    load_batch(step, loader, targets, first_sample);
    // Not earlier, so that all processes begin to send at the same point of the update.
    const bool is_last = i / division.ranks->size() == (micro_batches - 1) / division.ranks->size();
    step.accumulate(is_last);
  }
  return true;
}

}  // namespace

std::optional<int64_t> run_update(TrainStep& step, DataLoader& loader, int64_t micro_batches, double learning_rate,
                                  int64_t update, const std::function<bool()>& stop) {
  const int64_t tokens = loader.tokens_ahead(micro_batches), targets = loader.learned_ahead(micro_batches);
  const parallel::Division& division = step.division();
  step.begin(learning_rate, targets, update);
  if (division.has_stages())
    take_turns(step, loader, micro_batches, targets);
  else if (!accumulate(step, loader, micro_batches, targets, stop))
    return step.abandon(), std::nullopt;
  const int64_t of_last_round = (micro_batches - 1) % division.ranks->size() + 1;
  const bool has_joined = division.has_stages() && division.divides_weights;  // in its turn
  if (division.ranks->rank() >= of_last_round && !has_joined)
    step.join(parallel::Pass::forward), step.join(parallel::Pass::backward);
  step.apply();
  return tokens;
}

}  // namespace gpt::run
