// gpt-train: load the configuration, build the parts, run.
#include <fmt/format.h>

#include "gpt/config/load.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/tokenizer/tokenizer.h"
#include "gpt/train/announce.h"
#include "gpt/train/trainer.h"

namespace {

int train(int argc, char** argv) {
  using namespace gpt;
  const auto command = config::parse_command_line(argc, argv, "gpt-train", "Train a GPT from scratch.");
  if (command.handled) return 0;
  Config config = command.config;
  config::require_data(config, command.config_path.empty() ? "gpt-train" : command.config_path);
  process::watch_signals();
  use_cpu_threads(config.threads);

  const RunFolder folder(config.output_dir);
  const auto resumed = folder.find_checkpoint(config.training.resume_from);
  if (resumed) require_same_tokenizer(config.data.tokenizer, resumed->tokenizer);
  const Corpus corpus =
      load_corpus(config.data, config.model.block_size, resumed ? resumed->tokenizer : "", config.model.vocab_size);
  config.model.vocab_size = vocabulary_for(corpus, config.model.vocab_size);
  if (resumed) announce_changes(resumed->config, config);

  const DeviceChoice choice = select_device(config.device);
  const DeviceInfo device = describe_device(choice.device);
  announce_device(device, choice);
  const Precision precision = resolve_precision(config.training.use_amp, config.training.dtype, device);
  apply_precision(precision, config.training.deterministic);
  announce_methods(config, precision, device);

  RunState state(config, corpus, choice.device, precision);
  const RunPlan plan = plan_run(config.training, state.loader.batches_per_epoch());
  announce_run(config, state.model, corpus, plan, state.loader.resident());
  if (resumed) {
    state.restore(*resumed);
    if (state.is_finished(plan)) {
      log::info(fmt::format("{} is finished: {} of {} steps. Raise training.max_steps or epochs to go on, or choose another "
                            "output_dir for a new run", folder.path(), state.step, plan.total_steps));
      return 0;
    }
    log::info(fmt::format("Resuming after step {} of {}", state.step, plan.total_steps));
    folder.rewind_metrics(state.step);
  }
  folder.require_space(state.checkpoint_bytes(), config.training.keep_last);
  folder.write_config(config);
  return static_cast<int>(Trainer(state, config.training, plan, corpus, folder, precision, device).run());
}

}  // namespace

int main(int argc, char** argv) { return gpt::process::run(argc, argv, train); }
