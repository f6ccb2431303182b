#include "gpt/train/train_command.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/device/host.h"
#include "gpt/plan/before_training.h"
#include "gpt/plan/out_of_memory.h"
#include "gpt/plan/resolve.h"
#include "gpt/run/automatic_sizes.h"
#include "gpt/run/beginning.h"
#include "gpt/run/finished.h"
#include "gpt/run/run.h"
#include "gpt/run/same_run.h"
#include "gpt/train/announce.h"
#include "gpt/train/evaluate_run.h"
#include "gpt/train/reporting.h"
#include "gpt/train/trainer.h"

namespace gpt {
namespace {

ExitCode leave_finished(const run::FinishedRun& run) {
  const std::string text = fmt::format("{}; {}", run.fact, run.remedy);
  if (run.is_foreign) throw Error(ExitCode::config, text);
  log::info(text);
  return ExitCode::ok;
}

void announce_beginning(const run::Run& run, const run::Beginning& begins) {
  if (begins.start) {
    log::info(fmt::format("Resuming from {} after step {} of {}", begins.start->path, with_commas(run.state().step),
                          with_commas(run.plan().total_steps)));
  }
  if (begins.initial) {
    const auto& step = begins.initial->step;
    log::info(fmt::format("Beginning a new run with the weights of {}{}", begins.initial->path,
                          step ? fmt::format(" (step {})", with_commas(*step)) : ""));
  }
}

// Everything from the first tensor of the run to its end.
ExitCode train(const config::CommandLine& command, const run::Setup& setup, const run::Folder& folder,
               run::Beginning& begins, std::vector<std::string> changes) {
  const Config& config = setup.config;
  run::Run run(setup, begins);
  if (begins.start) {
    const bool has_validation = setup.corpus.validation.size() > 0;
    if (const auto done = run::find_finished(*begins.start, config, command.origins, run.plan(), has_validation))
      return leave_finished(*done);
    run::announce_changes(changes);
    for (std::string& change : run::environment_changes(begins.start->checkpoint, setup.device.device))
      changes.push_back(std::move(change));
  }
  run.check_operators();
  announce_run(run);
  announce_idle_settings(setup, run.state().loader.resident(), command.origins);
  announce_beginning(run, begins);
  if (begins.start) folder.rewind_metrics(run.state().step);
  begins.release_tensors();
  folder.require_space(run.state().checkpoint_bytes(), config.training.cadence.keep_last);
  folder.write_config(config, command.config_path);
  Listeners listeners = listeners_of(folder, config.report);
  listeners.begin(describe_run(run, folder, std::move(changes)));
  return Trainer(run, folder, listeners, /*is_saved=*/begins.start && begins.start->is_last).run();
}

}  // namespace

ExitCode train(const config::CommandLine& command, const TrainOptions& options) {
  const Config& asked = command.config;
  if (options.eval_only && options.restart)
    throw Error(ExitCode::config, "--eval-only and --restart exclude each other");
  run::require_run_data(asked, command.config_path.empty() ? "gpt-train" : command.config_path);
  process::watch_signals();
  use_cpu_threads(asked.threads);
  use_cpu_allocator();
  if (options.eval_only) return evaluate_run(asked, command.origins);

  DeviceChoice choice = select_device(asked.device);  // so that a missing one is reported before a text is prepared
  choice.is_wished = command.origins.count("use_gpu") > 0;
  const run::Folder folder(asked.output_dir);
  run::Beginning begins = run::find_beginning(folder, asked, command.origins, options.restart);
  if (!begins.start) run::announce_choice(asked, command.origins, command.config_path);
  run::RunData data = run::load_data(asked, command.origins, begins);
  const std::vector<std::string> changes = std::move(data.changes);
  announce_device(describe_device(choice.device), choice, host::has_nvidia_gpu());
  const run::Setup setup = plan::resolve(std::move(data), choice.device, asked.training.precision);
  announce_methods(setup);
  plan::check_before_training(setup, /*is_resumed=*/begins.start.has_value());
  try {
    return train(command, setup, folder, begins, changes);
  } catch (const std::exception& error) {
    if (!process::is_out_of_memory(error)) throw;
    begins.release_tensors();  // where the run's own could not be made beside them
    return plan::explain_out_of_memory(error, setup, begins.start ? begins.start->path : "");
  }
}

}  // namespace gpt
