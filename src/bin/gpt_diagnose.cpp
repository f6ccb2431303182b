// gpt-diagnose: what this machine can do, and what a configuration would meet on it.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/diagnose/configuration.h"
#include "gpt/diagnose/machine.h"
#include "gpt/prepare/text_cache.h"
#include "gpt/train/surroundings.h"

namespace {

void append(gpt::Checks& checks, gpt::Checks more) {
  for (auto& check : more) checks.push_back(std::move(check));
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

bool colours() { return isatty(STDOUT_FILENO) && !std::getenv("NO_COLOR"); }

int diagnose(int argc, char** argv) {
  using namespace gpt;
  using config::switch_row;
  bool json = false, no_probe = false, cache = false, clear_cache = false;
  std::string checkpoint;
  const auto command = config::parse_command_line(
      argc, argv, "gpt-diagnose",
      "Check this machine and, with --config or options, a run: its data, model, memory, time and disk. "
      "Exit status 1 when a check fails.",
      {switch_row("json", json, "print the checks as JSON on standard output"),
       switch_row("no-probe", no_probe, "do not time training steps, which takes some seconds"),
       {.name = "checkpoint", .target = &checkpoint, .help = "verify a checkpoint, or that of a run folder"},
       switch_row("cache", cache, "list the texts in data.cache_dir, and run no checks"),
       switch_row("clear-cache", clear_cache, "remove the cached texts that are not in use, and run no checks")},
      choose_for_this_machine);
  if (command.handled) return 0;
  if (clear_cache) log::info(clear_text_cache(command.config.data));
  if (cache) print(describe_text_cache(command.config.data, json));
  if (cache || clear_cache) return 0;
  process::watch_signals();
  use_cpu_threads(command.config.threads);
  use_cpu_allocator();

  Checks checks = check_machine();
  const bool configured = !command.config_path.empty() || !command.origins.empty();
  constexpr double kTrialSeconds = 5;
  if (configured) append(checks, check_configuration(command, no_probe ? 0 : kTrialSeconds));
  if (!checkpoint.empty()) checks.push_back(check_checkpoint(checkpoint));

  print(json ? to_json(checks) : to_table(checks, colours()));
  return static_cast<int>(any_failed(checks) ? ExitCode::failed_check : ExitCode::ok);
}

}  // namespace

int main(int argc, char** argv) { return gpt::process::run(argc, argv, diagnose); }
