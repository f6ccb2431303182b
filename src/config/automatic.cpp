#include "gpt/config/automatic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/batch.h"
#include "gpt/config/option.h"
#include "gpt/config/rules.h"
#include "gpt/config/value.h"

namespace gpt::config {
namespace {

struct Sizes {
  bool gpu;
  int64_t cores;  // at least
  int64_t n_layer, n_head, n_embd, block_size, batch_size, steps;
  double dropout = 0;  // as much as the text needs
};

// The best row is the last one that the machine reaches. The CPU rows take 15 to 25 TFLOP a core, ten minutes at 30 GFLOP/s;
// only the one for two cores was measured (README, "A first run"), and none on a GPU, where the row is nanoGPT's.
// clang-format off
constexpr Sizes kTable[] = {
    {false, 1, 4, 4, 128, 128, 16, 1500},
    {false, 2, 4, 4, 128, 128, 16, 2500},
    {false, 4, 6, 6, 192, 128, 16, 2500},
    {false, 8, 6, 8, 256, 256, 16, 1500},
    {false, 16, 6, 6, 384, 256, 16, 1500},
    {true, 1, 6, 6, 384, 256, 64, 5000},
};
// clang-format on

// Tokens that are learned from a text of at least so many characters; none from a shorter one.
struct Vocabulary {
  int64_t characters, tokens;
};
constexpr Vocabulary kVocabularies[] = {{500'000, 1024}, {1'000'000, 2048}, {3'000'000, 4096}};

constexpr double kOfLearnedTokens = 1.5;  // characters in each: more than in those that are characters or bytes

constexpr double kRowSeconds = 150;  // that the row for two cores took where it was measured

constexpr Interval kOfTime{10, Interval::Unit::percent};  // between validations of a run with max_time

constexpr const char* kSizeKeys[] = {"model.n_layer",  "model.n_head",   "model.n_kv_head", "model.n_embd",
                                     "model.head_dim", "model.n_hidden", "model.block_size"};

// Everything that the table sets, and use_amp, which an earlier version of it turned off on a CPU: a run that was started so
// continues in float32.
constexpr const char* kChosenKeys[] = {"model.n_layer",
                                       "model.n_head",
                                       "model.n_embd",
                                       "model.block_size",
                                       "model.dropout",
                                       "data.tokenizer",
                                       "data.validation_fraction",
                                       "training.sequence_length",
                                       "training.batch_size",
                                       "training.max_steps",
                                       "training.learning_rate",
                                       "training.min_lr",
                                       "training.warmup_steps",
                                       "training.lr_schedule",
                                       "training.optimizer",
                                       "training.beta2",
                                       "training.use_amp",
                                       "training.eval_interval",
                                       "training.sample_interval",
                                       "training.patience"};

bool is_chosen(const std::string& key) {
  return std::find(std::begin(kChosenKeys), std::end(kChosenKeys), key) != std::end(kChosenKeys);
}

// Whether the user has written out a size of the model. Where that comes from a checkpoint, the length of its sequences is none.
bool names_size(const Origins& origins, bool has_model) {
  return std::any_of(std::begin(kSizeKeys), std::end(kSizeKeys), [&](const std::string& key) {
    return origins.count(key) > 0 && !(has_model && key == "model.block_size");
  });
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

// With as many updates as were written out, or as fit into the time.
Sizes row_for(const Config& config, const Origins& origins, const Surroundings& surroundings) {
  const ScheduleConfig& schedule = config.training.schedule;
  Sizes best = kTable[surroundings.gpu ? std::size(kTable) - 1 : 0];
  for (const Sizes& row : kTable) {
    if (row.gpu == surroundings.gpu && row.cores <= surroundings.cores) best = row;
  }
  if (schedule.has_time())
    best.steps = std::max<int64_t>(1, std::llround(best.steps * schedule.max_time.seconds / kRowSeconds));
  if (origins.count("training.max_steps")) best.steps = schedule.max_steps.value_or(best.steps);
  return best;
}

// What the table must leave as it is.
struct Given {
  bool model = false, length = false,
       batch = false;  // sizes of the model, length of the sequences, how many at a time
  std::optional<int64_t> total_batch_size = {};
};

// Sequences of which validation has a few.
void fit_sequences_to_text(Sizes& sizes, const Surroundings& surroundings, double validation_fraction) {
  constexpr int64_t kShortest = 8, kFew = 4;
  const double tokens =
      validation_fraction * static_cast<double>(surroundings.characters) / surroundings.characters_per_token;
  while (sizes.block_size > kShortest && surroundings.characters > 0 &&
         tokens < static_cast<double>(kFew * sizes.block_size))
    sizes.block_size /= 2;
}

// A model that is there may read longer sequences than the table has: as many tokens at a time, which decide memory and time, or fewer where
// they do not fit.
void fit_to_model(Sizes& sizes, Config config, const Given& given, const Surroundings& surroundings,
                  double validation_fraction) {
  constexpr int64_t kShortest = 128;
  const int64_t tokens = sizes.batch_size * sizes.block_size;
  sizes.n_layer = config.model.n_layer, sizes.n_embd = config.model.n_embd;
  sizes.block_size = given.length ? config.sequence_length() : std::min(config.sequence_length(), tokens);
  if (!given.length) fit_sequences_to_text(sizes, surroundings, validation_fraction);
  sizes.batch_size = std::clamp<int64_t>(tokens / sizes.block_size, 1, sizes.batch_size);
  if (!surroundings.fits) return;
  const auto fits = [&] {
    config.training.sequence_length = sizes.block_size;
    if (!given.batch) config.training.batch_size = sizes.batch_size;
    return surroundings.fits(config);
  };
  while (!given.batch && sizes.batch_size > 1 && !fits()) sizes.batch_size /= 2;
  while (!given.length && sizes.block_size > kShortest && !fits()) sizes.block_size /= 2;
}

// A short text is learned by a quarter of the model, in sequences of which validation has a few, and in batches of which an epoch
// has a few. The model sees it at most 30 times, with as little dropout as that allows. A model that is there gets none, and keeps its size.
void fit_to_text(Sizes& sizes, const Surroundings& surroundings, double validation_fraction, const Given& given) {
  constexpr int64_t kShort = 50'000, kLeastSteps = 100, kLeastBatches = 16;
  constexpr double kMostEpochs = 30, kDropouts[] = {0, 0.1, 0.2};
  if (surroundings.characters == 0) return;
  const double tokens = static_cast<double>(surroundings.characters) / surroundings.characters_per_token;
  if (!given.model && surroundings.characters < kShort) sizes.n_layer = 2, sizes.n_head = 2, sizes.n_embd = 64;
  if (!given.model) fit_sequences_to_text(sizes, surroundings, validation_fraction);
  const double of_epoch = tokens * (1 - validation_fraction);
  while (!given.total_batch_size && sizes.batch_size > 4 &&
         of_epoch < static_cast<double>(kLeastBatches * sizes.batch_size * sizes.block_size))
    sizes.batch_size /= 2;
  const auto of_step = static_cast<double>(given.total_batch_size.value_or(sizes.batch_size) * sizes.block_size);
  const double weights = weights_of_blocks(sizes.n_layer, sizes.n_embd);
  const bool are_learned = surroundings.characters_per_token > kOfLearnedTokens;
  double epochs = std::min(kMostEpochs, static_cast<double>(sizes.steps) * of_step / of_epoch), useful = 0;
  for (const double dropout : kDropouts) {
    if (useful >= epochs || (given.model && dropout > 0) || dropout > most_dropout(are_learned)) break;
    sizes.dropout = dropout, useful = useful_epochs(weights / of_epoch, dropout, are_learned);
  }
  epochs = std::min(epochs, useful);
  const auto steps = static_cast<int64_t>(epochs * of_epoch / of_step) / 100 * 100;
  sizes.steps = std::min(std::max(steps, kLeastSteps), sizes.steps);
}

// What ends lowest in the same time on a CPU (src/bench/README.md, "The optimizer that auto takes").
void choose_optimizer(Config& chosen, const Origins& origins, const Surroundings& surroundings) {
  constexpr double kRateOfMuon = 4e-3, kRateOfAdamW = 2e-3;
  if (surroundings.gpu || surroundings.processes > 1) return;
  OptimizerConfig& optimizer = chosen.training.optimizer;
  ScheduleConfig& schedule = chosen.training.schedule;
  if (!origins.count("training.lr_schedule")) schedule.lr_schedule = LrSchedule::wsd;
  // Who writes a rate means that of the optimizer that every program has, a quarter of Muon's.
  const bool has_rate = origins.count("training.learning_rate") && !schedule.finds_learning_rate;
  if (!origins.count("training.optimizer") && !has_rate) {
    optimizer.kind = OptimizerKind::muon;
    if (find_refusal(chosen, {.is_cpu = true, .processes = 1})) optimizer.kind = OptimizerKind::adamw;
  }
  if (!origins.count("training.learning_rate"))
    schedule.learning_rate = optimizer.has_muon() ? kRateOfMuon : kRateOfAdamW;
}

}  // namespace

bool chooses_sizes(const Config& config, const Origins& origins) {
  return config.model.preset == Preset::automatic && !names_size(origins, !config.training.init_from.empty());
}

namespace {

// Tokens that the run will be trained on, each as often as it is, if there are `of_epoch` in the text.
double tokens_of_run(const Config& config, const Origins& origins, const Surroundings& surroundings, double of_epoch) {
  const ScheduleConfig& schedule = config.training.schedule;
  if (schedule.epochs) return *schedule.epochs * of_epoch;
  const Sizes sizes = row_for(config, origins, surroundings);
  const bool has_batch = origins.count("training.batch_size") && config.training.batch_size > 0;
  const int64_t sequences = has_batch ? config.training.batch_size : sizes.batch_size;
  return static_cast<double>(sizes.steps * config.training.total_batch_size.value_or(sequences) * sizes.block_size);
}

}  // namespace

double characters_in_token(int64_t vocabulary) {
  return std::clamp(0.45 * std::log2(static_cast<double>(vocabulary)) - 2.2, 1.0, 4.0);
}

void choose_tokenizer(Config& config, const Origins& origins, const Surroundings& surroundings) {
  // Over more epochs than some dropout makes useful characters end lower, unless the run may end after those: tokens are then as far as
  // characters in twice the time.
  constexpr double kShorter = 2;
  const TrainingConfig& training = config.training;
  const bool is_given = origins.count("data.tokenizer") || origins.count("model.vocab_size") ||
                        !config.data.bin.empty() || !training.init_from.empty() || !training.distillation.from.empty();
  // Conversations need a tokenizer that is there before them, and on a GPU nothing was measured. A text that is no UTF-8 is about to be
  // refused, as its characters are not known; tokens of bytes would learn it as it is.
  if (is_given || !chooses_sizes(config, origins) || surroundings.gpu || surroundings.has_conversations ||
      !surroundings.is_utf8)
    return;
  const bool may_end_sooner =
      !training.schedule.has_time() && !training.schedule.epochs && !origins.count("training.max_steps");
  const Sizes sizes = row_for(config, origins, surroundings);
  const double weights = weights_of_blocks(sizes.n_layer, sizes.n_embd);
  for (const Vocabulary& row : kVocabularies) {
    const double of_epoch = (1 - config.data.validation_fraction) * static_cast<double>(surroundings.characters) /
                            characters_in_token(row.tokens),
                 most = useful_epochs(weights / of_epoch, most_dropout(/*are_learned=*/true), /*are_learned=*/true) *
                        (may_end_sooner ? kShorter : 1);
    if (surroundings.characters >= row.characters &&
        tokens_of_run(config, origins, surroundings, of_epoch) <= most * of_epoch)
      config.data.tokenizer = fmt::format("bpe:{}", row.tokens);
  }
}

void choose_tuning(Config& config, const Origins& origins) {
  // Adapters take ten times the rate of the weights themselves (Schulman et al., 2025, "LoRA Without Regret").
  constexpr double kLearningRate = 1e-4, kOfAdapters = 1e-3, kShareOfEnd = 0.1;
  constexpr int64_t kMostWarmUp = 100;
  if (config.training.init_from.empty()) return;
  ScheduleConfig& schedule = config.training.schedule;
  if (!origins.count("training.learning_rate"))
    schedule.learning_rate = config.training.tuning.lora.is_on() ? kOfAdapters : kLearningRate;
  if (!origins.count("training.min_lr"))
    schedule.min_lr = std::min(schedule.min_lr, kShareOfEnd * schedule.learning_rate);
  // How many steps a run counted in epochs has is known only with its data.
  if (!origins.count("training.warmup_steps") && !schedule.epochs && !schedule.has_time())
    schedule.warmup_steps = std::min(kMostWarmUp, schedule.max_steps.value_or(kDefaultMaxSteps) / 10);
  if (!origins.count("model.dropout")) config.model.dropout = 0;
}

double weights_of_blocks(int64_t n_layer, int64_t n_embd) {
  return 12.0 * static_cast<double>(n_layer * n_embd * n_embd);
}

double most_dropout(bool are_learned) { return are_learned ? 0.1 : 0.2; }  // as far as it was measured

// As characters: without dropout the loss of a model with 9 weights a token begins to rise after 13 epochs, and one with 10 weights and a
// dropout of 0.2, nanoGPT's, after 35; twice the weights need a text twice as large, seen as often in each of them: the root of two less.
// As learned tokens: with 2 weights a token it does after 6, and with a dropout of 0.1 a run of 8 ended lower than one of 22.
double useful_epochs(double weights_per_token, double dropout, bool are_learned) {
  constexpr double kFewest = 4;  // so often a text is worth nearly as much as another (Muennighoff et al., 2023)
  constexpr double kMost = 100, kOfCharacters = 40, kOfLearned = 7.5;
  const double of_one = are_learned ? kOfLearned : kOfCharacters;
  return std::clamp(of_one * (1 + 8 * dropout) / std::sqrt(weights_per_token), kFewest, kMost);
}

void choose_cadence(Config& config, const Origins& origins) {
  if (config.training.schedule.has_time() && !origins.count("training.eval_interval"))
    config.training.cadence.eval_interval = kOfTime;
}

void choose_sequence_length(Config& config, const Origins& origins, const Surroundings& surroundings) {
  constexpr int64_t kOfConversations = 512;
  if (!surroundings.has_conversations || origins.count("training.sequence_length")) return;
  config.training.sequence_length = std::min(kOfConversations, config.model.block_size);
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
  Sizes sizes = row_for(config, origins, surroundings);
  const Duration time = config.training.schedule.max_time;
  const bool has_model = !config.training.init_from.empty();
  const std::optional<int64_t> total_batch_size = config.training.total_batch_size;
  const bool is_length_of_sequences_given =
      origins.count("model.block_size") > 0 || origins.count("training.sequence_length") > 0;
  const Given given{has_model, is_length_of_sequences_given, origins.count("training.batch_size") > 0,
                    total_batch_size};
  if (has_model) fit_to_model(sizes, config, given, surroundings, fraction);
  if (total_batch_size) sizes.batch_size = largest_divisor(*total_batch_size, sizes.batch_size);
  const int64_t steps = sizes.steps;
  fit_to_text(sizes, surroundings, fraction, given);
  if (origins.count("training.max_steps")) sizes.steps = steps;
  if (!has_model) {
    chosen.model.n_layer = sizes.n_layer, chosen.model.n_head = sizes.n_head, chosen.model.n_embd = sizes.n_embd;
    chosen.model.block_size = sizes.block_size;
  } else if (sizes.block_size < config.model.block_size) {
    chosen.training.sequence_length = sizes.block_size;
  }
  chosen.model.dropout = sizes.dropout;
  TrainingConfig& training = chosen.training;
  training.batch_size = sizes.batch_size;
  if (time.seconds == 0) training.schedule.max_steps = sizes.steps;
  if (!has_model) {
    choose_optimizer(chosen, origins, surroundings);
    training.schedule.min_lr = std::min(1e-4, training.schedule.learning_rate);
  }
  training.optimizer.beta2 = 0.99;
  // How many steps a run counted in epochs has is known only with its data.
  if (!training.schedule.epochs && time.seconds == 0)
    training.schedule.warmup_steps = std::min<int64_t>(100, sizes.steps / 10);
  training.cadence.eval_interval = {std::max<int64_t>(50, sizes.steps / 12 / 50 * 50), Interval::Unit::steps};
  training.cadence.sample_interval = {6 * training.cadence.eval_interval.count, Interval::Unit::steps};
  if (time.seconds > 0)
    training.cadence.eval_interval = kOfTime, training.cadence.sample_interval = {50, Interval::Unit::percent};
  training.cadence.patience = 5;
  copy_chosen(config, origins, chosen);
  derive_accumulation(config.training, origins);
}

namespace {

void keep_sizes(Config& config, const Origins& origins, const Config& saved) {
  if (names_size(origins, !saved.training.init_from.empty())) return;
  if (origins.count("model.preset") && config.model.preset != Preset::automatic) return;
  copy_chosen(config, origins, saved);
  config.model.preset = saved.model.preset;
}

// What choose_tuning() sets beside the model's dropout.
bool is_of_tuning(const std::string& key) {
  return key == "training.learning_rate" || key == "training.min_lr" || key == "training.warmup_steps";
}

// A run that began with the weights of a checkpoint has the model of that one, which need not be there any more.
void keep_initial_model(Config& config, const Origins& origins, Config saved) {
  if (saved.training.init_from.empty()) return;
  if (config.training.init_from.empty()) config.training.init_from = saved.training.init_from;
  const std::vector<Option> to_rows = options(config), from_rows = options(saved);
  for (size_t i = 0; i < to_rows.size(); ++i) {
    const std::string key = to_rows[i].key();
    if ((to_rows[i].section == "model" || is_of_tuning(key)) && !origins.count(key))
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
  ScheduleConfig& schedule = config.training.schedule;
  if (schedule.finds_learning_rate) schedule.learning_rate = saved.training.schedule.learning_rate;
  schedule.finds_learning_rate = false;
  if (!config.data.num_workers) config.data.num_workers = saved.data.num_workers;
  if (!origins.count("data.document_separator")) config.data.document_separator = saved.data.document_separator;
  // Those of a run that is to be longer now stay where they were.
  if (config.data.schedule == DataSchedule::grow && saved.data.schedule == DataSchedule::grow &&
      !origins.count("data.stages"))
    config.data.stages = saved.data.stages;
}

}  // namespace gpt::config
