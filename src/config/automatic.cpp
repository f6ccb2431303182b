#include "gpt/config/automatic.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gpt/config/batch.h"
#include "gpt/config/option.h"
#include "gpt/config/value.h"

namespace gpt::config {
namespace {

struct Sizes {
  bool gpu;
  int64_t cores;  // at least
  int64_t n_layer, n_head, n_embd, block_size, batch_size, steps;
  double dropout;
};

// The best row is the last one that the machine reaches. The CPU rows take 15 to 25 TFLOP a core, ten minutes at 30 GFLOP/s;
// only the one for two cores was measured (README, "A first run"), and none on a GPU, where the row is nanoGPT's.
// clang-format off
constexpr Sizes kTable[] = {
    {false, 1, 4, 4, 128, 128, 16, 1500, 0.0},
    {false, 2, 4, 4, 128, 128, 16, 2500, 0.0},
    {false, 4, 6, 6, 192, 128, 16, 2500, 0.0},
    {false, 8, 6, 8, 256, 256, 16, 1500, 0.0},
    {false, 16, 6, 6, 384, 256, 16, 1500, 0.0},
    {true, 1, 6, 6, 384, 256, 64, 5000, 0.2},
};
// clang-format on

constexpr const char* kSizeKeys[] = {"model.n_layer", "model.n_head",   "model.n_kv_head",
                                     "model.n_embd",  "model.n_hidden", "model.block_size"};

// Everything that the table sets, and use_amp, which an earlier version of it turned off on a CPU: a run that was started so
// continues in float32.
constexpr const char* kChosenKeys[] = {"model.n_layer",          "model.n_head",
                                       "model.n_embd",           "model.block_size",
                                       "model.dropout",          "data.validation_fraction",
                                       "training.batch_size",    "training.max_steps",
                                       "training.min_lr",        "training.warmup_steps",
                                       "training.beta2",         "training.use_amp",
                                       "training.eval_interval", "training.sample_interval"};

bool is_chosen(const std::string& key) {
  return std::find(std::begin(kChosenKeys), std::end(kChosenKeys), key) != std::end(kChosenKeys);
}

// Copies the rows that the table sets and the user did not write.
void copy_chosen(Config& config, const Origins& origins, Config from) {
  const std::vector<Option> to_rows = options(config), from_rows = options(from);
  // A run counted in epochs has no number of steps.
  const bool in_epochs = config.training.schedule.epochs.has_value();
  for (size_t i = 0; i < to_rows.size(); ++i) {
    const std::string key = to_rows[i].key();
    if (!is_chosen(key) || origins.count(key) || (in_epochs && key == "training.max_steps")) continue;
    (void)assign(to_rows[i], value_text(from_rows[i].target), /*is_quoted=*/false);
  }
}

Sizes row_for(const Surroundings& surroundings) {
  Sizes best = kTable[surroundings.gpu ? std::size(kTable) - 1 : 0];
  for (const Sizes& row : kTable) {
    if (row.gpu == surroundings.gpu && row.cores <= surroundings.cores) best = row;
  }
  return best;
}

// A text of less than 20,000 characters is learned by a quarter of the model, in sequences of which validation has a few.
void fit_to_text(Sizes& sizes, const Surroundings& surroundings, double validation_fraction, int64_t total_batch_size,
                 bool has_model) {
  constexpr int64_t kLeastCharacters = 20'000, kLeastSteps = 100;
  constexpr double kMostEpochs = 30;
  if (surroundings.characters == 0) return;
  const double tokens = static_cast<double>(surroundings.characters) / surroundings.characters_per_token;
  if (!has_model && surroundings.characters < kLeastCharacters) sizes.n_layer = 2, sizes.n_head = 2, sizes.n_embd = 64;
  while (!has_model && sizes.block_size > 8 && tokens * validation_fraction < static_cast<double>(4 * sizes.block_size))
    sizes.block_size /= 2;
  const double tokens_per_step = static_cast<double>(total_batch_size * sizes.block_size);
  const auto most = static_cast<int64_t>(kMostEpochs * tokens * (1 - validation_fraction) / tokens_per_step);
  sizes.steps = std::clamp(most / 100 * 100, kLeastSteps, sizes.steps);
}

}  // namespace

bool chooses_sizes(const Config& config, const Origins& origins) {
  return config.model.preset == Preset::automatic &&
         std::none_of(std::begin(kSizeKeys), std::end(kSizeKeys),
                      [&](const char* key) { return origins.count(key) > 0; });
}

void choose_sizes(Config& config, const Origins& origins, const Surroundings& surroundings) {
  if (!chooses_sizes(config, origins)) {
    if (config.model.preset == Preset::automatic) config.model.preset = Preset::none;
    return;
  }
  constexpr int64_t kLongText = 100'000'000;  // a hundredth of it is validation enough
  Config chosen = config;
  if (surroundings.characters > kLongText) chosen.data.validation_fraction = 0.01;
  const double fraction =
      origins.count("data.validation_fraction") ? config.data.validation_fraction : chosen.data.validation_fraction;
  Sizes sizes = row_for(surroundings);
  const bool has_model = !config.training.init_from.empty();
  if (has_model) sizes.block_size = config.model.block_size;
  const int64_t total_batch_size = config.training.total_batch_size.value_or(sizes.batch_size);
  sizes.batch_size = largest_divisor(total_batch_size, sizes.batch_size);
  fit_to_text(sizes, surroundings, fraction, total_batch_size, has_model);
  if (origins.count("training.max_steps")) sizes.steps = config.training.schedule.max_steps.value_or(sizes.steps);
  if (!has_model) {
    chosen.model.n_layer = sizes.n_layer, chosen.model.n_head = sizes.n_head, chosen.model.n_embd = sizes.n_embd;
    chosen.model.block_size = sizes.block_size;
  }
  chosen.model.dropout = sizes.dropout;
  TrainingConfig& training = chosen.training;
  training.batch_size = sizes.batch_size, training.schedule.max_steps = sizes.steps;
  training.schedule.min_lr = std::min(1e-4, config.training.schedule.learning_rate), training.optimizer.beta2 = 0.99;
  // How many steps a run counted in epochs has is known only with its data.
  if (!training.schedule.epochs) training.schedule.warmup_steps = std::min<int64_t>(100, sizes.steps / 10);
  training.cadence.eval_interval = {std::max<int64_t>(50, sizes.steps / 6 / 50 * 50), Interval::Unit::steps};
  training.cadence.sample_interval = {3 * training.cadence.eval_interval.count, Interval::Unit::steps};
  copy_chosen(config, origins, chosen);
  derive_accumulation(config.training, origins);
}

namespace {

void keep_sizes(Config& config, const Origins& origins, const Config& saved) {
  for (const char* key : kSizeKeys) {
    if (origins.count(key)) return;
  }
  if (origins.count("model.preset") && config.model.preset != Preset::automatic) return;
  copy_chosen(config, origins, saved);
  config.model.preset = saved.model.preset;
}

// A run that began with the weights of a checkpoint has the model of that one, which need not be there any more.
void keep_initial_model(Config& config, const Origins& origins, Config saved) {
  if (saved.training.init_from.empty()) return;
  if (config.training.init_from.empty()) config.training.init_from = saved.training.init_from;
  const std::vector<Option> to_rows = options(config), from_rows = options(saved);
  for (size_t i = 0; i < to_rows.size(); ++i) {
    const std::string key = to_rows[i].key();
    if (to_rows[i].section == "model" && key != "model.dropout" && !origins.count(key))
      (void)assign(to_rows[i], value_text(from_rows[i].target), /*is_quoted=*/false);
  }
}

void keep_precision(PrecisionConfig& now, const PrecisionConfig& saved) {
  if (now.dtype == Dtype::automatic && now.use_amp == saved.use_amp) now.dtype = saved.dtype;
  if (now.amp_mode == AmpMode::automatic) now.amp_mode = saved.amp_mode;
  if (now.gradient_dtype == GradientDtype::automatic) now.gradient_dtype = saved.gradient_dtype;
}

// Whatever memory is free now. And the same sequences, written as a total or as two factors, are no other run.
void keep_batch(TrainingConfig& now, const Origins& origins, const TrainingConfig& saved) {
  const auto total = [](const TrainingConfig& training) {
    return training.total_batch_size.value_or(training.batch_size * training.gradient_accumulation_steps);
  };
  if (now.batch_size == 0) {
    set_batch_size(now, saved.batch_size);
  } else {
    derive_accumulation(now, origins);
  }
  if (total(now) == total(saved)) now.total_batch_size = saved.total_batch_size;
}

}  // namespace

void keep_choices(Config& config, const Origins& origins, const Config& saved) {
  keep_sizes(config, origins, saved);
  keep_initial_model(config, origins, saved);
  keep_precision(config.training.precision, saved.training.precision);
  keep_batch(config.training, origins, saved.training);
}

}  // namespace gpt::config
