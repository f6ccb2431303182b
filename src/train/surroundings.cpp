#include "gpt/train/surroundings.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpt/config/automatic.h"
#include "gpt/config/load.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/processors.h"
#include "gpt/device/device.h"
#include "gpt/prepare/load_corpus.h"
#include "gpt/train/run_folder.h"

namespace gpt {
namespace {

config::Surroundings surroundings_of(const Config& config) {
  const int64_t cores = usable_processors();
  return {.gpu =
              config.device.starts_with("cuda") || (config.device == "auto" && select_device("auto").device.is_cuda()),
          .cores = config.threads > 0 ? std::min(config.threads, cores) : cores,
          .characters = estimate_characters(config.data)};
}

bool is_same_run(const Config& saved, Config now, const config::Origins& origins) {
  config::keep_choices(now, origins, saved);
  if (!now.model.vocab_size) now.model.vocab_size = saved.model.vocab_size;
  const auto changes = config::difference(saved, now);
  return std::all_of(changes.begin(), changes.end(),
                     [](const config::Change& change) { return change.safe_on_resume; });
}

}  // namespace

void choose_for_this_machine(Config& config, const config::Origins& origins) {
  if (config::chooses_sizes(config, origins)) {
    config::choose_sizes(config, origins, surroundings_of(config));
  } else {
    config::choose_sizes(config, origins, {});
  }
}

void announce_choice(const Config& config, const config::Origins& origins) {
  const config::Surroundings here = surroundings_of(config);
  // A text that is empty or not there is about to be refused.
  if (config.model.preset == Preset::automatic && here.characters > 0) {
    const std::string device =
        here.gpu ? "a GPU" : fmt::format("{} CPU {}", here.cores, here.cores == 1 ? "core" : "cores");
    const ModelConfig& m = config.model;
    std::string run;  // what was chosen of it
    if (!origins.count("training.batch_size")) run += fmt::format(", {} at a time", config.training.batch_size);
    if (const auto steps = config.training.schedule.max_steps; steps && !origins.count("training.max_steps"))
      run += ", " + plural(*steps, "step");
    log::info(fmt::format("model.preset: auto chose {}, {}, width {}, sequences of {}{}, for {} and {} of text",
                          plural(m.n_layer, "layer"), plural(m.n_head, "head"), m.n_embd, plural(m.block_size, "token"),
                          run, device, format_bytes(static_cast<double>(here.characters))));
  }
  const std::string former = fmt::format("{}/run", config::kRunsFolder);
  if (origins.count("output_dir") || config.output_dir == former) return;
  const auto run = peek_run(former);
  if (run && is_same_run(run->checkpoint.config, config, origins)) {
    log::info(fmt::format("{} holds a run of this configuration, at step {}: --output_dir {} continues it", former,
                          run->checkpoint.step, former));
  }
}

}  // namespace gpt
