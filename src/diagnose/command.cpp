#include "gpt/diagnose/command.h"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/output.h"
#include "gpt/core/process.h"
#include "gpt/core/terminal.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/diagnose/checkpoint_check.h"
#include "gpt/diagnose/configuration.h"
#include "gpt/diagnose/machine.h"
#include "gpt/diagnose/plan_options.h"
#include "gpt/diagnose/runs.h"
#include "gpt/plan/automatic_sizes.h"
#include "gpt/plan/resolve.h"
#include "gpt/prepare/text_cache.h"

namespace gpt::diagnose {
namespace {

void append(plan::Checks& checks, plan::Checks more) {
  for (auto& check : more) checks.push_back(std::move(check));
}

bool colours() { return isatty(STDOUT_FILENO) && !std::getenv("NO_COLOR"); }

config::Guide guide() {
  return {.examples = R"(  gpt-diagnose
  gpt-diagnose --data my_text.txt
  gpt-diagnose --config config.yaml --gpu "RTX 4090" --price-per-hour 0.35
  gpt-diagnose --checkpoint models/mine
  gpt-diagnose --run models/a models/b
)",
          .ending = R"(Exit status
  0 no check failed, 1 a check failed, 2 wrong usage; 129, 130 and 143 after SIGHUP, Ctrl-C and SIGTERM.
)"};
}

struct Options {
  bool json = false, cache = false, clear_cache = false;
  std::vector<std::string> runs = {};
  PlanOptions plan = {};

  // What is wanted instead of checks; empty: checks are.
  const char* instead() const {
    return !runs.empty() ? "--run" : cache ? "--cache" : clear_cache ? "--clear-cache" : "";
  }
};

std::vector<config::Option> options_of(Options& options) {
  using config::switch_row;
  std::vector<config::Option> rows{
      switch_row("json", options.json, "print the checks, the cache or the runs as JSON on standard output"),
      {.name = "run",
       .target = &options.runs,
       .help = "draw and compare the losses of runs, finished or not, given their folders, and run no checks",
       .is_path = true},
      switch_row("cache", options.cache, "list the texts in data.cache_dir, and run no checks"),
      switch_row("clear-cache", options.clear_cache, "remove the cached texts that are not in use, and run no checks")};
  for (config::Option& row : diagnose::options(options.plan)) rows.push_back(std::move(row));
  return rows;
}

void show_cache_and_runs(const Options& options, const DataConfig& data) {
  if (options.clear_cache) log::info(prepare::clear_text_cache(data));
  if (options.cache) output::write(prepare::describe_text_cache(data, options.json));
  if (options.runs.empty()) return;
  const std::vector<board::RunSummary> summaries = read_runs(options.runs);
  output::write(options.json ? runs_json(summaries)
                             : draw_runs(summaries, terminal_columns(STDOUT_FILENO), locale_is_utf8()));
}

plan::Checks check_all(const config::CommandLine& command, const PlanOptions& asked) {
  const bool configured = !command.config_path.empty() || !command.origins.empty();
  plan::Checks checks;
  if (!asked.is_elsewhere()) append(checks, check_machine());
  if (configured) {
    append(checks, check_configuration(command, asked));
  } else if (!asked.checkpoint.empty()) {
    checks.push_back(check_checkpoint(asked.checkpoint));
  }
  return checks;
}

}  // namespace

int diagnose(int argc, char** argv) {
  Options options;
  const PlanOptions& asked = options.plan;
  const auto command = config::parse_command_line(
      argc, argv, "gpt-diagnose",
      "Checks this machine and, with --config or options, a run: its data, model, memory, time, cost and disk.",
      options_of(options),
      [&asked](Config& config, const config::Origins& origins) {
        if (!asked.gpu.empty()) config.device = "cuda";
        plan::choose_for_this_machine(config, origins);
      },
      guide());
  if (command.handled) return 0;
  for (const std::string& note : command.notes) log::info("Note: " + note);
  require_consistent(asked, command, options.instead());
  if (options.clear_cache && options.json)
    throw Error(ExitCode::config, "--clear-cache removes texts and has nothing to say in JSON: leave out --json");
  show_cache_and_runs(options, command.config.data);
  if (*options.instead()) return 0;
  process::watch_signals();
  device::use_cpu_threads(command.config.threads, plan::count_processes(command.config));
  device::use_cpu_allocator();
  const plan::Checks checks = check_all(command, asked);
  output::write(options.json ? to_json(checks) : to_table(checks, colours(), terminal_columns(STDOUT_FILENO)));
  return static_cast<int>(plan::any_failed(checks) ? ExitCode::failed_check : ExitCode::ok);
}

}  // namespace gpt::diagnose
