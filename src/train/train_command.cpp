#include "gpt/train/train_command.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/rules.h"
#include "gpt/control/inbox.h"
#include "gpt/core/child_process.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/process.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/device/host.h"
#include "gpt/distributed/group.h"
#include "gpt/distributed/launcher.h"
#include "gpt/parallel/divided_state.h"
#include "gpt/plan/automatic_sizes.h"
#include "gpt/plan/before_training.h"
#include "gpt/plan/out_of_memory.h"
#include "gpt/plan/resolve.h"
#include "gpt/report/early_loss.h"
#include "gpt/report/event_command.h"
#include "gpt/run/beginning.h"
#include "gpt/run/decisions.h"
#include "gpt/run/find_length.h"
#include "gpt/run/finished.h"
#include "gpt/run/longer_run.h"
#include "gpt/run/run.h"
#include "gpt/run/same_run.h"
#include "gpt/run/shared_beginning.h"
#include "gpt/train/announce.h"
#include "gpt/train/evaluate_run.h"
#include "gpt/train/live_page.h"
#include "gpt/train/reporting.h"
#include "gpt/train/settle_rate.h"
#include "gpt/train/task_evaluations.h"
#include "gpt/train/trainer.h"

namespace gpt::train {
namespace {

void tell_finished(const run::FinishedRun& run) {
  const std::string text = fmt::format("{}; {}", run.fact, run.remedy);
  if (run.is_foreign) throw Error(ExitCode::config, text);
  log::info(text);
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

// All processes have read what they begin with, and none has refused the run: from here on the folder is the new run's.
void clear_folder(const run::Run& run, const run::Folder& folder, const run::InTheWay& in_the_way) {
  distributed::Communicator& all = *run.state().division().all;
  (void)all.is_any(false);  // waits for all
  if (!all.is_first()) return;
  const std::optional<checkpoint::BaseModel>& base = run.state().base();
  const bool has_checkpoint = base && !checkpoint::is_foreign_base(base->path);
  if (has_checkpoint) folder.hold_base(base->path);
  folder.set_aside(in_the_way);
  if (has_checkpoint) folder.keep_held_base();
}

void warn_of_late_decisions(const std::vector<checkpoint::Decision>& to_come, const run::Plan& plan) {
  const auto is_length = [](const checkpoint::Decision& decision) {
    return decision.what == run::kTotalSteps || decision.what == run::kSteps;
  };
  if (std::any_of(to_come.begin(), to_come.end(), is_length)) return;  // the plan's is not the last
  const auto late = std::count_if(to_come.begin(), to_come.end(), [&plan](const checkpoint::Decision& decision) {
    return decision.step >= plan.total_steps;
  });
  if (late == 0) return;
  log::warn(fmt::format("{} never hold{}, because the run ends after step {}: the last is of step {}",
                        plural(late, "decision"), late == 1 ? "s" : "", with_commas(plan.total_steps),
                        with_commas(to_come.back().step)));
}

std::unique_ptr<report::ResultFile> make_result(const TrainOptions& options, const run::Folder& folder) {
  if (options.result.empty() && !options.json) return nullptr;
  return std::make_unique<report::ResultFile>(options.result, options.json, folder.metrics_path());
}

// Everything from the first tensor of the run to its end.
ExitCode train(const config::CommandLine& command, const TrainOptions& options, const run::Setup& setup,
               const run::Folder& folder, run::Beginning& begins, std::vector<std::string> changes,
               const std::optional<run::FoundRate>& found) {
  const Config& config = setup.config;
  run::Run run(setup, begins.take_tensors());
  std::unique_ptr<report::ResultFile> result = make_result(options, folder);
  if (begins.start) {
    const bool has_validation = setup.corpus.validation.size() > 0;
    if (const auto done = run::find_finished(*begins.start, config, command.origins, run.plan(), has_validation)) {
      tell_finished(*done);
      if (result) result->begin(describe_run(run, folder, {})), result->end();
      return ExitCode::ok;
    }
    run::announce_changes(changes);
    const int64_t steps_per_epoch = run.plan().steps_per_epoch;
    const checkpoint::Checkpoint& from = begins.start->checkpoint;
    for (const auto& line : {run::describe_rate_change(from, config.training.schedule, steps_per_epoch),
                             run::describe_decay_change(from, config.training, steps_per_epoch)})
      if (line) log::info(*line);
    for (std::string& change : run::environment_changes(begins.start->checkpoint, setup.device.device))
      changes.push_back(std::move(change));
  }
  run.check_operators();
  if (!begins.start && config.training.schedule.has_time()) plan::check_length_before_training(run);
  announce_run(run);
  announce_idle_settings(setup, run.state().loader.resident(), command.origins);
  announce_beginning(run, begins);
  begins.release_tensors();
  folder.require_space(run.state().checkpoint_bytes(), config.training, begins.in_the_way);
  clear_folder(run, folder, begins.in_the_way);
  if (begins.start) folder.rewind_metrics(run.state().step);
  run::begin_decisions(folder, run.state().decisions, begins.decisions);
  warn_of_late_decisions(begins.decisions, run.plan());
  if (found) write_rate_chart(folder, *found);
  folder.write_config(config::dump(config), command.config_path);
  report::Listeners listeners = listeners_of(folder, config.report, std::move(result), options.on_event);
  if (options.stops_at_third)
    listeners.add(std::make_unique<report::StopAtThird>(folder.metrics_path()),
                  "the run does not stop at a third of its steps");
  listeners.begin(describe_run(run, folder, std::move(changes)));
  std::unique_ptr<control::Inbox> inbox;
  if (options.control) inbox = std::make_unique<control::Inbox>(folder.path(), [] { process::request_stop(SIGINT); });
  return Trainer(run, folder, listeners, /*is_saved=*/begins.start && begins.start->is_last, begins.decisions,
                 MemoryWatch::of_this_machine(), inbox.get())
      .run();
}

// A run along lr_schedule: wsd that has been made longer goes on from before the decay of its learning rate.
void go_back_before_decay(const run::Folder& folder, const run::Setup& setup, run::Beginning& begins) {
  if (!begins.start || !begins.start->is_last) return;
  const Config& config = setup.config;
  const int64_t steps_per_epoch =
      run::plan_run(config.training, run::batches_in_epoch(config, setup.corpus)).steps_per_epoch;
  const auto path = run::checkpoint_before_decay(*begins.start, config.training.schedule, steps_per_epoch);
  if (!path) return;
  begins.start.reset();  // its tensors are large
  try {
    run::FoundStart found =
        folder.go_back(*path,
                       "The run is longer now: it goes on without a jump of the learning rate, from before the decay,");
    begins.start = std::move(found.start), begins.in_the_way = std::move(found.in_the_way);
  } catch (const Error& error) {
    if (error.code() != ExitCode::checkpoint) throw;
    throw Error(error.code(), fmt::format("{}; remove it, and the run goes on from {} with a jump of the learning rate",
                                          error.what(), checkpoint::kLastCheckpoint));
  }
}

// The device of this process: of several on a machine with GPUs, each has its own.
device::DeviceChoice select_device_of(const distributed::Ranks& ranks, const std::string& asked) {
  const bool is_numbered = ranks.size > 1 && (asked == "cuda" || (asked == "auto" && device::gpu_count() > 0));
  return device::select_device(is_numbered ? fmt::format("cuda:{}", ranks.local_rank) : asked);
}

void require_new_run(const Config& asked) {
  const bool holds_run = run::holds_checkpoint(asked.output_dir);
  if (!holds_run && !checkpoint::names_checkpoint(asked.training.resume_from)) return;
  throw Error(
      ExitCode::config,
      fmt::format("--find-lr looks for the learning rate of a run that begins, but {}; name a free folder, such as "
                  "--output_dir {}{}",
                  holds_run ? asked.output_dir + " holds one already" : "training.resume_from continues one",
                  run::next_free_folder(asked.output_dir), holds_run ? "" : ", and leave resume_from out"));
}

bool must_find_rate(const run::Setup& setup, const TrainOptions& options) {
  return options.find_lr || setup.config.training.schedule.finds_learning_rate;
}

ExitCode tell_found_rate(const run::Setup& setup, const std::optional<run::FoundRate>& found, bool json) {
  if (json && !found) return ExitCode::numerics;  // as a warning has said
  if (json) print(to_json(*found));
  const TrainingConfig& training = setup.config.training;
  log::info(fmt::format("Next: the same command without --find-lr, with {}--learning_rate {:.3g}",
                        training.optimizer.kind == OptimizerKind::muon ? "--optimizer muon " : "",
                        training.schedule.learning_rate));
  return ExitCode::ok;
}

// The first process of the run, which owns its folder and decides for all.
ExitCode train_as_first(const config::CommandLine& command, const TrainOptions& options,
                        const device::DeviceChoice& choice, const distributed::Group& group) {
  const Config& asked = command.config;
  const run::Folder folder(asked.output_dir, parallel::needed_state(group.mesh(), asked.distributed));
  if (options.find_lr) require_new_run(asked);
  // Early: it is a fork of this process, which is small now.
  const LivePage page(asked.output_dir, options.live, options.control);
  const distributed::Ranks& ranks = group.ranks();
  const bool restarts = options.restart && (ranks.launcher.empty() || folder.is_still_to_restart(ranks.restart));
  run::Beginning begins = run::find_beginning(folder, asked, command.origins, restarts);
  if (!begins.start) plan::announce_choice(asked, command.origins, command.config_path);
  run::RunData data = run::load_data(asked, command.origins, begins);
  const std::vector<std::string> changes = std::move(data.changes);
  announce_device(device::describe_device(choice.device), choice, host::has_nvidia_gpu());
  run::Setup setup = plan::resolve(std::move(data), choice.device, asked.training.precision, group);
  announce_methods(setup);
  announce_processes(group, choice.device, asked.distributed);
  go_back_before_decay(folder, setup, begins);
  begins.decisions = run::decisions_to_come(folder, begins, options.replay);
  plan::check_before_training(setup, /*is_resumed=*/begins.start.has_value());
  run::say_beginning(group, begins, setup);
  try {
    std::optional<run::FoundRate> found;
    if (must_find_rate(setup, options)) {
      (void)TaskEvaluations(setup.config, setup.corpus);  // what is wrong with them shows before the search
      found = settle_learning_rate(setup, begins, folder);
    }
    if (!options.find_lr) run::find_length(setup, begins, !options.replay.empty());
    if (options.find_lr) {
      if (found) write_rate_chart(folder, *found);
      return tell_found_rate(setup, found, options.json);
    }
    return train(command, options, setup, folder, begins, changes, found);
  } catch (const std::exception& error) {
    if (!process::is_out_of_memory(error)) throw;
    begins.release_tensors();  // where the run's own could not be made beside them
    return plan::explain_out_of_memory(error, setup, begins.start ? begins.start->path : "");
  }
}

// Another one, which computes the same run and writes nothing.
ExitCode train_as_other(const config::CommandLine& command, const TrainOptions& options, at::Device device,
                        const distributed::Group& group) {
  const Config& asked = command.config;
  const run::Folder folder =
      run::Folder::of_first_process(asked.output_dir, parallel::needed_state(group.mesh(), asked.distributed));
  run::SharedBeginning shared = run::hear_beginning(group, command, folder);
  run::Setup setup = plan::resolve_like_first(std::move(shared.data), device, asked.training.precision, group);
  if (must_find_rate(setup, options)) (void)settle_learning_rate(setup, shared.begins, folder);
  if (options.find_lr) return ExitCode::ok;
  run::find_length(setup, shared.begins, !options.replay.empty());
  run::Run run(setup, shared.begins.take_tensors());
  if (shared.begins.start) {
    const bool has_validation = setup.corpus.validation.size() > 0;
    if (run::find_finished(*shared.begins.start, setup.config, command.origins, run.plan(), has_validation))
      return ExitCode::ok;  // as the first process says
  }
  run.check_operators();
  shared.begins.release_tensors();
  clear_folder(run, folder, {});
  report::Listeners nobody;
  return Trainer(run, folder, nobody, /*is_saved=*/true, shared.begins.decisions).run();
}

// While it exists, warnings of another process than the first go into the first one's log.
class ForwardedWarnings {
 public:
  explicit ForwardedWarnings(const distributed::Group& group) : ranks_(group.ranks()) {
    log::of_rank(ranks_.rank, ranks_.size, [&group](const std::string& warning) { group.forward_warning(warning); });
  }
  ~ForwardedWarnings() { log::of_rank(ranks_.rank, ranks_.size, nullptr); }
  ForwardedWarnings(const ForwardedWarnings&) = delete;
  ForwardedWarnings& operator=(const ForwardedWarnings&) = delete;

 private:
  const distributed::Ranks ranks_;
};

// Whether the first process says why the run ends. Numbers are the same in all of them.
bool is_said_by_first(const Error& error, const distributed::Group& group) {
  if (group.is_first()) return false;
  return error.code() == ExitCode::interrupted || error.code() == ExitCode::numerics ||
         (error.code() == ExitCode::peer && !group.has_lost_first());
}

// None: a signal has ended the waiting, as the first process says, or gpt-train where it has started all of them.
std::unique_ptr<distributed::Group> meet_others(const distributed::Ranks& ranks, at::Device device,
                                                const Config& asked) {
  try {
    return std::make_unique<distributed::Group>(ranks, device, asked.output_dir, asked.distributed.timeout);
  } catch (const Error& error) {
    const bool is_said = !ranks.is_first() || ranks.launcher == "gpt-train";
    if (error.code() != ExitCode::interrupted || !is_said) throw;
    return nullptr;
  }
}

// So many processes and no more can be divided into groups that have a model between them.
void require_mesh(Config config, int64_t processes) {
  config.distributed.processes = processes;
  config::require_agreement(config, {.all_are_started = true});
}

// As one of the processes of a run, which may be the only one.
ExitCode train_as(const distributed::Ranks& ranks, const config::CommandLine& command, const TrainOptions& options) {
  const Config& asked = command.config;
  log::of_rank(ranks.rank, ranks.size, nullptr);
  for (const std::string& note : command.notes) log::info("Note: " + note);
  device::use_cpu_threads(asked.threads, ranks.local_size, ranks.local_rank);
  device::use_cpu_allocator();
  device::DeviceChoice choice =
      select_device_of(ranks, asked.device);  // so that a missing one is reported before a text is prepared
  choice.is_wished = command.origins.count("use_gpu") > 0;
  require_mesh(asked, ranks.size);
  const std::unique_ptr<distributed::Group> met = meet_others(ranks, choice.device, asked);
  if (!met) return process::stop_code();
  distributed::Group& group = *met;
  const ForwardedWarnings forwarded(group);
  try {
    run::require_same_command(group, command);
    group.arrange(asked.distributed.tensor_parallel, asked.distributed.pipeline_parallel);
    const ExitCode code = group.is_first() ? train_as_first(command, options, choice, group)
                                           : train_as_other(command, options, choice.device, group);
    if (code != ExitCode::ok && code != process::stop_code())
      group.leave(fmt::format("its exit status is {}", static_cast<int>(code)));
    return code;
  } catch (const Error& error) {
    group.leave(error.what());
    if (!is_said_by_first(error, group)) throw;
    return error.code() == ExitCode::interrupted ? process::stop_code() : error.code();
  } catch (const std::exception& error) {
    group.leave(first_line(error.what()));
    throw;
  }
}

// Before any is started: where their libraries alone do not fit, the system ends one of them, or this process, without a word.
void require_memory_to_start(int64_t processes) {
  constexpr int64_t kOfLibraries = 64 << 20;  // what a process has for itself before it computes anything
  const int64_t needed = processes * kOfLibraries, free = host::free_memory_bytes();
  if (free >= needed) return;
  throw Error(
      ExitCode::memory,
      fmt::format("{} processes need {} before they compute anything, and {} is free: start fewer, or stop other "
                  "programs that hold memory",
                  processes, format_bytes(static_cast<double>(needed)), format_bytes(static_cast<double>(free))));
}

}  // namespace

ExitCode train(const config::CommandLine& command, const TrainOptions& options) {
  const Config& asked = command.config;
  if (options.eval_only && options.restart)
    throw Error(ExitCode::config, "--eval-only and --restart exclude each other");
  if (options.find_lr && (options.eval_only || options.restart))
    throw Error(ExitCode::config, "--find-lr trains no run: leave out --eval-only and --restart");
  if (!options.replay.empty() && (options.eval_only || options.find_lr))
    throw Error(ExitCode::config, "--replay is for a run that trains: leave out --eval-only and --find-lr");
  if (!options.live.empty() && (options.eval_only || options.find_lr))
    throw Error(ExitCode::config, "--live is for a run that trains: leave out --eval-only and --find-lr");
  if (options.control && (options.eval_only || options.find_lr))
    throw Error(ExitCode::config, "--control is for a run that trains: leave out --eval-only and --find-lr");
  if (options.stops_at_third && (options.eval_only || options.find_lr))
    throw Error(ExitCode::config, "--stop-at-third is for a run that trains: leave out --eval-only and --find-lr");
  if (!options.live.empty()) (void)live_address(options.live);
  if (!options.result.empty() && (options.eval_only || options.find_lr))
    throw Error(ExitCode::config,
                "--result is for a run that trains: what --eval-only and --find-lr find is printed, by --json as JSON");
  if (!options.result.empty()) report::require_result_file(options.result);
  report::require_event_command(options.on_event);
  run::require_run_data(asked, command.config_path.empty() ? "gpt-train" : command.config_path);
  process::watch_signals();
  const distributed::Ranks ranks = distributed::find_ranks();
  if (options.eval_only) {
    if (ranks.size > 1)
      throw Error(ExitCode::config,
                  fmt::format("--eval-only computes in one process; start it without {}", ranks.launcher));
    device::use_cpu_threads(asked.threads);
    device::use_cpu_allocator();
    return evaluate_run(command, options.json);
  }
  DistributedConfig distributed = asked.distributed;
  distributed.processes = plan::count_processes(asked);
  if (ranks.size == 1) require_mesh(asked, distributed.processes);
  if (ranks.size == 1 && distributed.processes > 1) {
    require_memory_to_start(distributed.processes);
    std::vector<std::string> command{path_of_this_program()};
    command.insert(command.end(), options.arguments.begin(), options.arguments.end());
    return static_cast<ExitCode>(
        distributed::launch(command, distributed, asked.output_dir + "/" + checkpoint::kLastCheckpoint));
  }
  return train_as(ranks, command, options);
}

}  // namespace gpt::train
