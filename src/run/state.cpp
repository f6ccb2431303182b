#include "gpt/run/state.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>

#include "gpt/checkpoint/adapters.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/hash.h"
#include "gpt/core/log.h"
#include "gpt/core/seeds.h"
#include "gpt/core/version.h"
#include "gpt/data/document_mask.h"
#include "gpt/data/stages.h"
#include "gpt/device/device.h"
#include "gpt/device/random_state.h"
#include "gpt/layout/cut.h"
#include "gpt/layout/tuning.h"
#include "gpt/model/compile.h"
#include "gpt/model/tensor_parallel.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/optim/make_optimizer.h"
#include "gpt/parallel/divided_state.h"
#include "gpt/parallel/divided_weights.h"
#include "gpt/products/tuned_product.h"
#include "gpt/run/quantized_forward.h"

namespace gpt::run {
namespace {

// Independent streams from the run's single seed.
enum Stream : uint64_t { kWeights = 1, kData = 2, kDropout = 3 };
uint64_t stream_seed(const Config& config, Stream stream) {
  return mix64(static_cast<uint64_t>(config.seed) * 4 + stream);
}

// What dropout masks follow from. Older versions drew them from the default generators, and their checkpoints do not say so.
constexpr const char* kMasks = "dropout masks";
// The hash of what training.lora_base has made of the weights.
constexpr const char* kNarrowBase = "base";

parameters::ParameterTypes types_of(const TrainingConfig& training, const device::Precision& precision) {
  return {.compute = precision.weight_type(),
          .has_master = training.precision.master_weights,
          .gradient = device::gradient_type(training, precision.end_to_end)};
}

// Those of the checkpoint, or of another model with new adapters, where the run trains such; nothing: they are drawn.
std::optional<parameters::NamedTensors> weights_of(Beginning& begins, const std::vector<layout::ParameterRow>& of_model,
                                                   uint64_t seed) {
  if (begins.start) return begins.start->checkpoint.model;
  if (begins.initial) return checkpoint::with_new_adapters(std::move(begins.initial->model), of_model, seed);
  return std::nullopt;
}

// The hash of the values that parameters keep in few bits; empty where there are none.
std::string hash_of_narrow(const parameters::Parameters& parameters) {
  Hash128 hash;
  bool has_any = false;
  for (size_t i = 0; i < parameters.rows().size(); ++i) {
    if (!parameters[i].is_narrow()) continue;
    has_any = true;
    for (const at::Tensor& part : parameters[i].frozen().tensors())
      hash.update({static_cast<const char*>(part.const_data_ptr()), part.nbytes()});
  }
  return has_any ? hash.hex() : "";
}

// What else has been read for the model: those of its weights that are packed already.
parameters::FrozenMatrices packed_of(const Beginning& begins) {
  return begins.start     ? begins.start->checkpoint.frozen
         : begins.initial ? begins.initial->frozen
                          : parameters::FrozenMatrices();
}

// Where values are divided each process keeps its part of one parameter after the other.
model::GPT make_model(const Config& config, at::Device device, const parameters::ParameterTypes& types,
                      Beginning& begins, const parallel::Division& division) {
  const TuningConfig& tuning = config.training.tuning;
  const uint64_t seed = stream_seed(config, kWeights);
  const std::vector<layout::ParameterRow> of_model = layout::parameter_table(config.model, tuning);
  std::optional<parameters::NamedTensors> weights = weights_of(begins, of_model, seed);
  std::vector<layout::ParameterRow> rows = layout::cut(of_model, config.model, division.part());
  auto values = division.values(rows, layout::flat_layout(rows));
  if (!values)
    return weights ? model::GPT(config.model, device, std::move(*weights), types, tuning, division.part(),
                                packed_of(begins))
                   : model::GPT(config.model, device, seed, types, tuning, division.part());
  parameters::Parameters parameters(std::move(rows), device, types, std::move(values));
  model::GPT model(config.model, parameters, ops::fused_operators(), division.part(), of_model);
  weights ? model.copy_from(std::move(*weights)) : parameters.draw(seed, of_model);
  model.set_layer_weights(std::make_shared<parallel::DividedWeights>(parameters, division));
  return model;
}

data::ScheduleOptions with(data::ScheduleOptions options, const data::Dealing& dealing) {
  options.dealing = dealing;
  return options;
}

ops::SpikeWatch watch_for(const DivergenceConfig& config, at::Device device) {
  return config.looks_for_spikes() ? ops::new_watch(device, config.spike_window, config.spike_threshold)
                                   : ops::SpikeWatch{};
}

std::string in_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

data::ScheduleOptions schedule_options(const Config& config, const data::Corpus& corpus) {
  data::ScheduleOptions options{.stages = data::stage_batches(config.data, config.training, config.sequence_length()),
                                .seed = stream_seed(config, kData),
                                .order = config.data.order,
                                .packing = config.data.packing};
  if (std::ranges::any_of(corpus.sources, &data::Tokens::has_marks))
    options.document_separator = data::document_separator(config.data, corpus);
  if (corpus.tokenizer) options.end_of_text = corpus.tokenizer->end_of_text();
  return options;
}

int64_t batches_in_epoch(const Config& config, const data::Corpus& corpus) {
  return batches::DataLoader(corpus.sources, config.data, schedule_options(config, corpus), at::kCPU)
      .batches_per_epoch();
}

uint64_t checkpoint_file_bytes(const Config& config, const tokenizer::Tokenizer* tokenizer) {
  // The tokenizer twice, for us and for Python; the rest is far below a megabyte.
  const uint64_t tokenizer_bytes = tokenizer ? tokenizer->to_json().size() : 0;
  return checkpoint::checkpoint_bytes(config.model, config.training) + 2 * tokenizer_bytes + (1 << 20);
}

State::State(const Config& config, const data::Corpus& corpus, at::Device device, const device::Precision& precision,
             Beginning begins, const parallel::Division& division)
    : frozen_(find_frozen(config, begins)),
      model(make_model(config, device, types_of(config.training, precision), begins, division)),
      optimizer(optim::make_optimizer(model.parameters(), config.training.optimizer,
                                      division.spans(model.parameters().rows(), model.parameters().layout()))),
      scaler(precision.grad_scaler, device),
      loader(corpus.sources, config.data,
             with(schedule_options(config, corpus), division.dealing(config.training.gradient_accumulation_steps)),
             device),
      config_(config),
      corpus_(corpus),
      division_(division),
      device_(device),
      counts_(ops::no_updates(device)),
      watch_(watch_for(config.training.cadence.divergence, device)) {
  seed_generators(dropout_seed());
  model.set_operators(model::tensor_parallel(model::select_operators(config.training.execution, device),
                                             division.tensor, config.model));
  model.set_training_operators(quantized_operators(config.model, config.training.quantized, model.operators()));
  const ExecutionConfig& execution = config.training.execution;
  model.set_gradient_checkpointing(execution.gradient_checkpointing);
  if (const int64_t swapped = std::min(execution.swap_activations.value_or(config.model.n_layer), config.model.n_layer);
      swapped > 0)
    model.set_activation_swap(std::make_shared<model::ActivationSwap>(swapped, device::host_copies(device)));
  if (model.part().stages > 1) model.set_stage_link(std::make_shared<model::StageLink>(division.pipeline));
  model.set_document_separator(data::document_separator(config.data, corpus));
  model.train(true);
  frozen_.hash = hash_of_narrow(model.parameters());
  begins.start ? restore(*begins.start) : begin();
  // LibTorch's own operators draw dropout from the generators, and processes must not draw the same for different sequences.
  if (const auto rank = static_cast<uint64_t>(division.all->rank()); rank > 0)
    seed_generators(mix64(dropout_seed() + mix64(static_cast<uint64_t>(step)) + rank));
}

void State::seed_generators(uint64_t seed) const {
  device::seed_random_state(at::kCPU, seed);
  if (device_.is_cuda()) device::seed_random_state(device_, seed);
}

bool State::tunes_products() const { return model::effective_mode(config_.training, config_.model, device_).tunes; }

uint64_t State::dropout_seed() const { return stream_seed(config_, kDropout); }

std::map<std::string, at::Tensor> State::random_state() const {
  std::map<std::string, at::Tensor> state{{"cpu", gpt::device::random_state(at::kCPU)}};
  if (device_.is_cuda()) state["cuda"] = gpt::device::random_state(device_);
  return state;
}

void State::set_random_state(const std::map<std::string, at::Tensor>& state) {
  if (const auto it = state.find("cpu"); it != state.end()) gpt::device::set_random_state(at::kCPU, it->second);
  if (const auto it = state.find("cuda"); it != state.end() && device_.is_cuda())
    gpt::device::set_random_state(device_, it->second);
}

State::Cursor State::cursor() const { return {loader.position(), random_state()}; }

void State::rewind(const Cursor& cursor) {
  loader.seek(cursor.position);
  set_random_state(cursor.rng);
}

uint64_t State::checkpoint_bytes() const { return checkpoint_file_bytes(config_, corpus_.tokenizer.get()); }

void State::await_weights() const {
  if (model.layer_weights()) model.layer_weights()->await_all();
}

void State::prepare_capture() {
  await_weights();
  if (!can_capture()) rounded_ = parallel::rounded_moments(*optimizer, model.parameters(), division_);
}

checkpoint::Checkpoint State::capture() const {
  TORCH_CHECK(can_capture(), "State: capture() without prepare_capture()");
  await_weights();
  checkpoint::Checkpoint saved;
  saved.model = model.parameters().values();
  if (division_.divides_checkpoints()) {
    parallel::capture_parts(*optimizer, model, layout::parameter_table(config_.model, config_.training.tuning),
                            division_, rounded_.value_or(parallel::RoundedMoments()), saved);
  } else {
    saved.optimizer = optimizer->state();
  }
  if (scaler.enabled()) {
    saved.scaler_scale = scaler.scale_value();
    saved.scaler_growth_tracker = scaler.growth_tracker();
  }
  saved.rng = random_state();
  saved.config = config_;
  saved.tokenizer = corpus_.tokenizer ? corpus_.tokenizer->to_json() : "";
  leave_out_base(saved);
  capture_values(saved);
  return saved;
}

State::Frozen State::find_frozen(const Config& config, const Beginning& begins) {
  Frozen frozen;
  if (!begins.start && !begins.initial) return {.is_drawn = true};
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(config.model, config.training.tuning);
  const parameters::NamedTensors& values = begins.start ? begins.start->checkpoint.model : begins.initial->model;
  if (begins.start) {
    frozen.base = begins.start->checkpoint.base, frozen.from_base = begins.start->checkpoint.from_base;
  } else if (begins.initial->base) {
    frozen.base = begins.initial->base;
    for (const layout::ParameterRow& row : rows)
      if (!row.is_trained && !begins.initial->changed.contains(row.name)) frozen.from_base.insert(row.name);
  }
  for (const auto& [name, value] : values) {
    const auto row = std::ranges::find(rows, name, &layout::ParameterRow::name);
    if (row != rows.end() && row->is_narrow() && !frozen.from_base.contains(name))
      frozen.in_full.emplace_back(name, value.detach());
  }
  return frozen;
}

void State::leave_out_base(checkpoint::Checkpoint& saved) const {
  saved.base = frozen_.base;
  std::erase_if(saved.model, [this](const auto& tensor) { return frozen_.from_base.contains(tensor.first); });
  for (const std::string& name : frozen_.from_base) saved.parts.erase("model/" + name);
  if (frozen_.hash.empty()) return;
  parameters::NamedTensors in_full = frozen_.in_full;
  if (frozen_.is_drawn) {
    const std::vector<layout::ParameterRow> rows = layout::parameter_table(config_.model, config_.training.tuning);
    parameters::Parameters drawn(layout::parameter_table(config_.model), at::kCPU);
    drawn.draw(stream_seed(config_, kWeights), rows);
    in_full = drawn.values();  // the first of all rows
    for (size_t i = in_full.size(); i-- > 0;)
      if (!rows[i].is_narrow()) in_full.erase(in_full.begin() + static_cast<std::ptrdiff_t>(i));
  }
  const std::map<std::string, at::Tensor> of_name(in_full.begin(), in_full.end());
  for (auto& [name, tensor] : saved.model)
    if (const auto found = of_name.find(name); found != of_name.end()) tensor = found->second.detach();
}

// Those that a run remembers besides tensors: its own, and those that others keep.
void State::capture_values(checkpoint::Checkpoint& into) const {
  static_cast<checkpoint::Remembered&>(into) = *this;
  into.data_round = loader.position().round;
  into.data_sample = loader.position().sample;
  into.skipped_steps = skipped_steps();
  into.consecutive_skipped_steps = skipped_in_a_row();
  if (watch_.window.defined()) {
    into.spike_window = watch_.window;
    into.spike_accepted = watch_.accepted;
    into.spikes = spikes();
  }
  if (tunes_products())
    if (std::string chosen = ops::chosen_products(); !chosen.empty()) into.chosen_products = std::move(chosen);
  into.data_fingerprint = corpus_.fingerprint;
  into.sample_start = corpus_.sample_start;
  into.text_format = corpus_.text_format;
  into.environment = run_environment(device_);
  if (!frozen_.hash.empty()) into.environment[kNarrowBase] = frozen_.hash;
}

void State::load_optimizer(const optim::OptimizerState& saved) const {
  optimizer->load(parallel::state_of_stage(saved, division_, model.parameters().rows()));
}

// Where a checkpoint was read in part, that is what this process has.
void State::require_own_values(const checkpoint::Checkpoint& checkpoint) const {
  const std::vector<layout::ParameterRow>& rows = model.parameters().rows();
  const layout::FlatLayout& layout = model.parameters().layout();
  TORCH_CHECK(!checkpoint.read_state ||
                  *checkpoint.read_state == parallel::values_of_own_state(division_, rows, layout),
              "State: the checkpoint was read for another division of the optimizer's state");
  TORCH_CHECK(!checkpoint.read_weights || *checkpoint.read_weights == parallel::own_values(division_, rows, layout),
              "State: the checkpoint was read for another division of the weights");
}

void State::begin() {
  started_by = config_.training.resume_from;
  eval_sequences = 0;
}

void State::restore(const StartingPoint& start) {
  const checkpoint::Checkpoint& checkpoint = start.checkpoint;
  require_own_values(checkpoint);
  load_optimizer(checkpoint.optimizer);
  if (scaler.enabled() && checkpoint.scaler_scale.defined()) {
    scaler.load(checkpoint.scaler_scale, checkpoint.scaler_growth_tracker);
  }
  set_random_state(checkpoint.rng);
  seek(checkpoint, start.path);
  restore_values(checkpoint);
  started_by = start.started_by;
  const std::vector<std::string> changes = environment_changes(checkpoint, device_);
  for (const std::string& change : changes)
    log::warn(fmt::format("changed since the checkpoint: {}; the run resumes, but not bit for bit", change));
  const auto narrow_base = checkpoint.environment.find(kNarrowBase);
  if (narrow_base != checkpoint.environment.end() && narrow_base->second != frozen_.hash)
    log::warn(
        "training.lora_base: this version rounds the base otherwise than the one that the run began with; the run "
        "resumes, but not bit for bit");
  recording_failed = recording_failed && changes.empty();
  if (recording_failed) log::info("Recording the step as CUDA graphs failed before, and is not tried again");
  if (checkpoint.chosen_products && tunes_products())
    if (const int64_t kinds = ops::choose_products(*checkpoint.chosen_products); kinds > 0)
      log::success(fmt::format("Computing {} as before, without measuring again", plural(kinds, "matrix product")));
  if (config_.model.dropout > 0 && config_.training.execution.use_compile && !checkpoint.environment.contains(kMasks))
    log::info("This run began with an older version: from here on its dropout masks follow from its seed and the step");
}

// As capture_values() has saved them, but for those that the loader, the corpus and this machine have.
void State::restore_values(const checkpoint::Checkpoint& checkpoint) {
  static_cast<checkpoint::Remembered&>(*this) = checkpoint;
  counts_.skipped.fill_(checkpoint.skipped_steps);
  counts_.skipped_in_a_row.fill_(checkpoint.consecutive_skipped_steps);
  if (watch_.spikes.defined()) watch_.spikes.fill_(checkpoint.spikes.value_or(0));
  load_window(checkpoint);
}

// One of another length, as another training.spike_window has it, is begun anew.
void State::load_window(const checkpoint::Checkpoint& checkpoint) {
  if (!watch_.window.defined()) return;
  watch_.accepted.zero_();
  if (!checkpoint.spike_window.defined() || checkpoint.spike_window.sizes() != watch_.window.sizes()) return;
  watch_.window.copy_(checkpoint.spike_window);
  watch_.accepted.copy_(checkpoint.spike_accepted);
}

void State::go_back(const checkpoint::Checkpoint& checkpoint) {
  require_own_values(checkpoint);
  await_weights();
  model.copy_from(checkpoint.model, checkpoint.frozen);
  if (model.parameters().divided_values()) model.layer_weights()->values_changed();
  load_optimizer(checkpoint.optimizer);
  if (scaler.enabled() && checkpoint.scaler_scale.defined())
    scaler.load(checkpoint.scaler_scale, checkpoint.scaler_growth_tracker);
  load_window(checkpoint);
  counts_.skipped.fill_(checkpoint.skipped_steps + step - checkpoint.step);
}

void State::seek(const checkpoint::Checkpoint& checkpoint, const std::string& path) {
  try {
    loader.seek({checkpoint.data_round, checkpoint.data_sample});
  } catch (const c10::Error& error) {
    throw Error(ExitCode::checkpoint, fmt::format("{} cannot be used: {}", path, first_line(error.what())));
  }
}

std::vector<std::string> environment_changes(const checkpoint::Checkpoint& checkpoint, at::Device device) {
  std::vector<std::string> changes;
  for (const auto& [what, now] : run_environment(device)) {
    const auto then = checkpoint.environment.find(what);
    if (then != checkpoint.environment.end() && then->second != now)
      changes.push_back(fmt::format("{}: {} -> {}", what, in_one_line(then->second), in_one_line(now)));
  }
  return changes;
}

std::map<std::string, std::string> run_environment(at::Device device) {
  return {{kMasks, "by place"},
          {"build", version_text()},
          {"device", device::describe_device(device).name},
          {"cpu", device::describe_device(at::kCPU).name},
          {"threads", std::to_string(at::get_num_threads())}};
}

}  // namespace gpt::run
