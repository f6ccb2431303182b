// gpt-train: load the configuration, build the parts, run.
#include <fmt/format.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/automatic.h"
#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/model/compile.h"
#include "gpt/plan/batch_choice.h"
#include "gpt/plan/before_training.h"
#include "gpt/plan/out_of_memory.h"
#include "gpt/run/automatic_sizes.h"
#include "gpt/run/finished.h"
#include "gpt/run/initial_weights.h"
#include "gpt/run/same_run.h"
#include "gpt/run/setup.h"
#include "gpt/train/announce.h"
#include "gpt/train/evaluate_run.h"
#include "gpt/train/reporting.h"
#include "gpt/train/trainer.h"

namespace {

using namespace gpt;

const config::Guide kGuide = {
    .first = {"data", "dataset", "tokenizer", "config", "output_dir", "max_steps", "batch_size", "learning_rate",
              "device", "restart"},
    .examples = R"(  gpt-train --data my_text.txt
  gpt-train --config configs/tier_24gb.yaml --data texts --tokenizer gpt2
  gpt-train --init_from models/mine --data other.txt --output_dir models/tuned
)",
    .ending =
        R"(The same command continues a run that was stopped. The log goes to standard error; standard output has only what --help, --version, --print-config, --print-reference and --eval-only print.

Exit status
  0 done, 1 an unexpected error, 2 configuration or usage, 3 data, 4 checkpoint, 5 numerics, 7 memory, 8 disk, 9 quit without saving; 129, 130 and 143 after SIGHUP, Ctrl-C and SIGTERM, with everything saved that there was to save.
)"};

int finished(const run::FinishedRun& run) {
  const std::string text = fmt::format("{}; {}", run.fact, run.remedy);
  if (run.is_foreign) throw Error(ExitCode::config, text);
  log::info(text);
  return 0;
}

// From the first tensor of the run to its end.
int run(const config::CommandLine& command, const run::Setup& setup, const run::Folder& folder,
        std::optional<run::StartingPoint>& start, std::optional<run::InitialWeights>& initial,
        std::vector<std::string> changes) {
  const auto& [config, corpus, device, precision] = setup;
  run::State state(config, corpus, device.device, precision, start ? &*start : nullptr,
                   initial ? &initial->model : nullptr);
  const run::Plan plan = run::plan_run(config.training, state.loader.batches_per_epoch());
  if (start) {
    const bool has_validation = corpus.validation.size() > 0;
    if (const auto done = run::find_finished(*start, config, command.origins, plan, has_validation))
      return finished(*done);
    run::announce_changes(changes);
    for (const std::string& change : run::environment_changes(start->checkpoint, device.device))
      changes.push_back(change);
  }
  run::Setup computed = setup;  // with the operators that turn out to work
  TrainingConfig& training = computed.config.training;
  training.execution.use_compile = compile_model(state.model, config.training, precision);
  announce_run(config, state.model, corpus, plan, state.loader.resident());
  announce_idle_settings(config, command.origins, device, precision, state.loader.resident());
  if (start) {
    log::info(fmt::format("Resuming from {} after step {} of {}", start->path, with_commas(state.step),
                          with_commas(plan.total_steps)));
    folder.rewind_metrics(state.step);
    start->checkpoint = {};  // its tensors are copied
  }
  if (initial) {
    log::info(
        fmt::format("Beginning a new run with the weights of {} (step {})", initial->path, with_commas(initial->step)));
    initial.reset();  // its tensors are copied
  }
  folder.require_space(state.checkpoint_bytes(), config.training.cadence.keep_last);
  folder.write_config(config, command.config_path);
  Listeners listeners = listeners_of(folder, config.report);
  listeners.begin(describe_run(setup, state, plan, folder, std::move(changes)));
  Trainer trainer(state, computed, plan, folder, listeners, /*is_saved=*/start && start->is_last,
                  run::recorder_for(training, config.model, device.device));
  return static_cast<int>(trainer.run());
}

// Nothing where training.init_from is not set.
std::optional<run::InitialWeights> find_initial(const Config& config, const config::Origins& origins) {
  const std::string& path = config.training.init_from;
  return path.empty() ? std::nullopt : std::optional(run::initial_weights(load_checkpoint(path), config, origins));
}

int train(int argc, char** argv) {
  bool restart = false, eval_only = false;
  const auto command = config::parse_command_line(
      argc, argv, "gpt-train", "Trains a GPT from scratch.",
      {config::switch_row("restart", restart, "start anew: an older run in output_dir is set aside"),
       config::switch_row(
           "eval-only", eval_only,
           "print the validation loss of the run's last checkpoint, over the whole split unless eval_batches is set, and exit")},
      choose_for_this_machine, kGuide);
  if (command.handled) return 0;
  if (eval_only && restart) throw Error(ExitCode::config, "--eval-only and --restart exclude each other");
  Config config = command.config;
  run::require_run_data(config, command.config_path.empty() ? "gpt-train" : command.config_path);
  process::watch_signals();
  use_cpu_threads(config.threads);
  use_cpu_allocator();
  if (eval_only) return static_cast<int>(evaluate_run(config, command.origins));

  DeviceChoice choice = select_device(config.device);  // so that a missing one is reported before a text is prepared
  choice.is_wished = command.origins.count("use_gpu") > 0;
  const run::Folder folder(config.output_dir);
  std::optional<run::InitialWeights> initial;
  if (restart) initial = find_initial(config, command.origins);  // which may lie in the run that is set aside
  auto start = folder.find_start(config.training.resume_from, restart);
  if (start) {
    config::keep_choices(config, command.origins, start->checkpoint.config);
  } else {
    if (!initial) initial = find_initial(config, command.origins);
    run::announce_choice(config, command.origins, command.config_path);
  }
  Corpus corpus = initial ? run::load_corpus_for(*initial, config) : run::load_run_corpus(config, start);
  config.model.vocab_size = vocabulary_for(corpus, config.model.vocab_size);
  std::vector<std::string> changes;  // since the checkpoint
  if (start) changes = run::require_same_configuration(*start, config);

  run::Setup setup = run::prepare_run(config, std::move(corpus), choice, command.config.training.precision);
  announce_methods(setup.config, setup.precision, setup.device);
  plan::choose_batch_size(setup.config, setup.corpus, setup.device, setup.precision, /*is_tried=*/true);
  keep_resolved(setup.config.training, setup.precision);
  plan::check_before_training(setup.config, setup.corpus, setup.device, setup.precision,
                              /*is_resumed=*/start.has_value());

  try {
    return run(command, setup, folder, start, initial, changes);
  } catch (const std::exception& error) {
    if (!process::is_out_of_memory(error)) throw;
    if (start) start->checkpoint = {};  // where the run's own tensors could not be made beside it
    initial.reset();
    return static_cast<int>(plan::explain_out_of_memory(error, setup.config, setup.corpus, setup.device,
                                                        setup.precision, start ? start->path : ""));
  }
}

}  // namespace

int main(int argc, char** argv) { return gpt::process::run(argc, argv, train); }
