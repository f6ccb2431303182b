// gpt-train: trains a GPT, or goes on with one.
#include <utility>

#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/process.h"
#include "gpt/plan/automatic_sizes.h"
#include "gpt/train/live_page.h"
#include "gpt/train/sweep.h"
#include "gpt/train/train_command.h"

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
        R"(The same command continues a run that was stopped. The log goes to standard error; standard output has only what --help, --manual, --version, the --print options, --eval-only, --sweep and --json print.

Exit status
  0 done, 1 an unexpected error, 2 configuration or usage, 3 data, 4 checkpoint, 5 numerics, 6 another process of the run was lost, 7 memory, 8 disk, 9 quit without saving; 129, 130 and 143 after SIGHUP, Ctrl-C and SIGTERM, with everything saved that there was to save.
)"};

config::CommandLine read_command_line(int argc, const char* const* argv, train::TrainOptions& options) {
  return config::parse_command_line(
      argc, argv, "gpt-train", "Trains a GPT from scratch.",
      {config::switch_row("restart", options.restart, "start anew: an older run in output_dir is set aside"),
       config::switch_row(
           "eval-only", options.eval_only,
           "print the validation loss of the run's last checkpoint, over the whole split unless eval_batches is set, and exit"),
       config::switch_row(
           "find-lr", options.find_lr,
           "look for the learning rate of a new run, as learning_rate: auto does, draw what was found, and exit"),
       {.name = "sweep",
        .target = &options.sweep,
        .help =
            "KEY=VALUE,VALUE ...: train a run with each combination of these values, in a folder within output_dir, and "
            "print a table of what came of them"},
       config::switch_row(
           "stop-poor-runs", options.stops_poor_runs,
           "with --sweep: train all runs to a third of their steps first, and go on with the better half"),
       config::switch_row(
           "stop-at-third", options.stops_at_third,
           "stop, with everything saved, at the first validation after a third of the steps that is not "
           "the first of all; the same command without it goes on. --stop-poor-runs does so with each run"),
       {.name = "replay",
        .target = &options.replay,
        .help =
            "take the decisions of this file at their steps, such as decisions.jsonl of a run that is to be repeated",
        .is_path = true},
       {.name = "result",
        .target = &options.result,
        .help =
            "write what came of the run to this file when it ends or stops: validation loss, tokens, seconds, as JSON",
        .is_path = true},
       {.name = "live",
        .target = &options.live,
        .help =
            "show the run on a page at this address as it goes, by a gpt-board that ends with it; at one that other "
            "machines reach, such as 0.0.0.0:8090, the page has a token",
        .if_true = train::kLiveAddress},
       config::switch_row(
           "control", options.control,
           "let the run be told what to do as it goes, by gpt-board tell and by the page of --live: pause, continue, save, "
           "validate, sample, stop, another learning rate or length"),
       config::switch_row(
           "json", options.json,
           "print what came of the run, or what --eval-only or --find-lr finds, as JSON on standard output")},
      plan::choose_for_this_machine, kGuide);
}

config::CommandLine read_run_of_sweep(const std::vector<std::string>& arguments) {
  std::vector<const char*> words{"gpt-train"};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  train::TrainOptions options;
  config::CommandLine command = read_command_line(static_cast<int>(words.size()), words.data(), options);
  if (!options.sweep.empty()) throw Error(ExitCode::config, "--sweep: a run of a sweep is no sweep");
  return command;
}

int main_of(int argc, char** argv) {
  train::TrainOptions options;
  config::CommandLine command = read_command_line(argc, argv, options);
  options.on_event = std::exchange(command.config.training.on_event, {});
  options.arguments.assign(argv + 1, argv + argc);
  if (command.handled) return 0;
  if (options.stops_poor_runs && options.sweep.empty())
    throw Error(ExitCode::config,
                "--stop-poor-runs is about the runs of a sweep: give --sweep KEY=VALUE,VALUE, or leave it out");
  return static_cast<int>(options.sweep.empty() ? train::train(command, options)
                                                : train::run_sweep(command, options, read_run_of_sweep));
}

}  // namespace

int main(int argc, char** argv) { gpt::process::run(argc, argv, main_of); }
