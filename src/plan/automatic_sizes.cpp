#include "gpt/plan/automatic_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/automatic.h"
#include "gpt/config/output_folder.h"
#include "gpt/config/rules.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/processors.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/distributed/ranks.h"
#include "gpt/layout/tuning.h"
#include "gpt/plan/estimates.h"
#include "gpt/plan/model_checks.h"
#include "gpt/plan/resolve.h"
#include "gpt/prepare/load_corpus.h"
#include "gpt/run/initial_weights.h"
#include "gpt/run/teacher.h"
#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt::plan {
namespace {

// By the memory that the machine has, so that the same command chooses the same whatever is free: whether it may suffice.
bool fits_this_machine(const Config& config) {
  try {
    const device::DeviceInfo device = device::describe_device(device::select_device(config.device).device);
    const bool is_shared = device.device.is_cpu();
    const MemoryBudget memory{.available = static_cast<double>(device.memory_bytes) /
                                           static_cast<double>(is_shared ? count_processes(config) : 1)};
    const device::Precision precision = device::resolve_precision(config.training.precision, device);
    ModelConfig model = config.model;
    if (!model.vocab_size) model.vocab_size = 1;  // of a tokenizer that is still to be made
    const ActivationForm form = activation_form(model, config.training, config.distributed, device, precision, "flash");
    return estimate_memory(model, config.training, form).total() <= memory.comfortable();
  } catch (const Error&) { return true; }  // what is wrong is about to be refused by name
}

config::Surroundings surroundings_of(const Config& config) {
  const int64_t cores = usable_cores();
  const prepare::TextEstimate text = prepare::estimate_text(config.data);
  return {.gpu = config.device.starts_with("cuda") ||
                 (config.device == "auto" && device::select_device("auto").device.is_cuda()),
          .cores = config.threads > 0 ? std::min(config.threads, cores) : cores,
          .processes = std::max({count_processes(config), distributed::find_ranks().size, config.distributed.lanes}),
          .characters = text.characters,
          .is_utf8 = text.is_utf8,
          .characters_per_token = 1,
          .fits = fits_this_machine};
}

double characters_in_token(const std::string& tokenizer) {
  constexpr double kOfLargeVocabulary = 4;
  if (tokenizer == "char" || tokenizer == "byte") return 1;
  const auto learned = tokenizer::trained_vocabulary(tokenizer);
  return learned ? config::characters_in_token(*learned) : kOfLargeVocabulary;
}

// As a person would write them.
std::vector<std::string> chosen_optimizer(Config config, const config::Origins& origins) {
  const config::Keys keys(config);
  std::vector<std::string> chosen;
  for (const std::string name : {"optimizer", "learning_rate", "lr_schedule"}) {
    const std::string key = "training." + name;
    if (!origins.count(key)) chosen.push_back(fmt::format("{} {}", name, keys.value(key)));
  }
  return chosen;
}

void announce_sizes(const Config& config, const config::Origins& origins) {
  const config::Surroundings here = surroundings_of(config);
  // A text that is empty or not there is about to be refused.
  if (config.model.preset != Preset::automatic || here.characters == 0) return;
  const std::string device =
      here.gpu ? "a GPU" : fmt::format("{} CPU {}", here.cores, here.cores == 1 ? "core" : "cores");
  const ModelConfig& m = config.model;
  const bool has_model = !config.training.init_from.empty();
  std::vector<std::string> chosen;
  if (!has_model) {
    chosen = {plural(m.n_layer, "layer"), plural(m.heads(), "head"), fmt::format("width {}", m.n_embd),
              "sequences of " + plural(m.block_size, "token")};
  } else if (config.sequence_length() < m.block_size && !origins.count("training.sequence_length")) {
    chosen = {fmt::format("sequences of {} (the model of training.init_from takes up to {})",
                          plural(config.sequence_length(), "token"), with_commas(m.block_size))};
  }
  if (!origins.count("training.batch_size"))
    chosen.push_back(fmt::format("{}{} at a time", config.training.batch_size, has_model ? " sequences" : ""));
  if (const auto steps = config.training.schedule.max_steps; steps && !origins.count("training.max_steps"))
    chosen.push_back(plural(*steps, "step"));
  if (m.dropout > 0 && !origins.count("model.dropout")) chosen.push_back(fmt::format("dropout {}", m.dropout));
  if (!has_model)
    for (std::string& setting : chosen_optimizer(config, origins)) chosen.push_back(std::move(setting));
  if (const auto learned = tokenizer::trained_vocabulary(config.data.tokenizer);
      learned && !origins.count("data.tokenizer"))
    chosen.push_back(fmt::format("{} tokens learned from the text instead of characters (tokenizer {})",
                                 with_commas(*learned), config.data.tokenizer));
  if (chosen.empty()) return;
  log::info(fmt::format("model.preset: auto chose {}, for {} and {} of text", fmt::join(chosen, ", "), device,
                        format_bytes(static_cast<double>(here.characters))));
}

void announce_tuning(const Config& config, const config::Origins& origins) {
  if (config.training.init_from.empty()) return;
  const ScheduleConfig& schedule = config.training.schedule;
  std::vector<std::string> chosen;
  if (!origins.count("training.learning_rate"))
    chosen.push_back(fmt::format("a learning rate of {:.3g}", schedule.learning_rate));
  if (schedule.warmup_steps.value_or(0) > 0 && !origins.count("training.warmup_steps"))
    chosen.push_back(plural(*schedule.warmup_steps, "update") + " of warm-up");
  if (!origins.count("model.dropout")) chosen.emplace_back("no dropout");
  if (chosen.empty()) return;
  log::info(
      fmt::format("training.init_from: a trained model is tuned with {}{}", fmt::join(chosen, ", "),
                  origins.count("training.learning_rate") ? "" : "; --learning_rate auto looks for a better one"));
}

// A folder of an earlier naming holds a run like this one.
void announce_former(const Config& config, const config::Origins& origins, const std::string& config_path) {
  for (const std::string& folder : config::former_output_folders(config.data, config_path)) {
    const std::optional<Config> saved = config::left_configuration(folder);
    if (!saved) continue;
    std::vector<std::string> keys;
    bool is_same_run = true;
    for (const config::Change& change : config::changes_of_run(*saved, config, origins)) {
      keys.push_back(change.key);
      is_same_run = is_same_run && change.safe_on_resume;
    }
    if (!is_same_run) continue;
    const std::string which =
        keys.empty() ? "of this configuration" : fmt::format("that differs only in {}", fmt::join(keys, ", "));
    log::info(fmt::format("{} holds a run {}: --output_dir {} would continue that one", folder, which, folder));
  }
}

}  // namespace

void choose_for_this_machine(Config& config, const config::Origins& origins) {
  const bool chooses = config::chooses_sizes(config, origins);
  std::optional<double> characters_per_token;
  if (!config.training.init_from.empty()) characters_per_token = run::take_model(config, origins);
  run::take_teacher(config, config.output_dir);
  config::Surroundings here;
  if (chooses) here = surroundings_of(config);
  here.has_conversations = prepare::holds_conversations(config.data);
  config::choose_tokenizer(config, origins, here);
  here.characters_per_token = characters_per_token.value_or(characters_in_token(config.data.tokenizer));
  config::choose_tuning(config, origins);
  config::choose_cadence(config, origins);
  config::choose_sequence_length(config, origins, here);
  config::choose_sizes(config, origins, here);
  if (config.data.schedule == DataSchedule::grow && config.data.stages.empty())
    config.data.stages =
        growing_stages(config.sequence_length(), config.training.schedule.max_steps.value_or(kDefaultMaxSteps));
  layout::require_tunable(config.model, config.training.tuning);
}

void announce_choice(const Config& config, const config::Origins& origins, const std::string& config_path) {
  announce_sizes(config, origins);
  announce_tuning(config, origins);
  if (!origins.count("output_dir")) announce_former(config, origins, config_path);
}

}  // namespace gpt::plan
