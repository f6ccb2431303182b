#include "gpt/bench/apart.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/core/child_process.h"
#include "gpt/core/error.h"
#include "gpt/core/process.h"

namespace gpt::bench {
namespace {

// The last line of what `VERB --config FILE OPTIONS...` writes.
std::optional<std::string> run_apart(const char* verb, const Config& config, const std::vector<std::string>& options) {
  if (process::stop_signal() != 0) return std::nullopt;
  MemoryFile settings("settings"), result("result"), errors("errors");
  settings.write(config::dump(config));
  std::vector<std::string> command{path_of_this_program(), verb, "--config", "/dev/stdin"};
  command.insert(command.end(), options.begin(), options.end());
  const int status =
      wait_for_child(start_child(command, {settings.descriptor(), result.descriptor(), errors.descriptor()}));
  if (process::stop_signal() != 0) return std::nullopt;
  if (WIFSIGNALED(status)) {
    throw Error(ExitCode::failed_check,
                fmt::format("the measurement was ended by SIG{}", sigabbrev_np(WTERMSIG(status))));
  }
  const int code = WEXITSTATUS(status);
  if (code == kNotStarted) throw Error(ExitCode::failed_check, "cannot start " + command[0]);
  if (code == 0) return result.last_line();
  std::string why = errors.last_line();
  constexpr std::string_view kPrefix = "error: ";
  if (why.starts_with(kPrefix)) why.erase(0, kPrefix.size());
  throw Error(static_cast<ExitCode>(code), why);
}

}  // namespace

std::optional<Measurement> measure_apart(const Config& config, const MeasurementLength& length) {
  const auto json =
      run_apart("measure", config,
                {"--warm-up", fmt::format("{}", length.warm_up), "--updates", fmt::format("{}", length.updates)});
  return json ? std::optional(measurement_from_json(*json)) : std::nullopt;
}

std::optional<plan::MachineSpeed> machine_speed_apart(const Config& config) {
  static std::map<std::string, plan::MachineSpeed> measured;
  const PrecisionConfig& precision = config.training.precision;
  const std::string key = fmt::format("{} {} {}", config.device, precision.use_amp, static_cast<int>(precision.dtype));
  if (const auto known = measured.find(key); known != measured.end()) return known->second;
  const auto json = run_apart("machine", config, {});
  return json ? std::optional(measured[key] = machine_speed_from_json(*json)) : std::nullopt;
}

std::optional<Learning> learn_apart(const Config& config, const LearningLength& length) {
  const auto json = run_apart("learn", config,
                              {"--updates", fmt::format("{}", length.updates), "--evaluations",
                               fmt::format("{}", length.evaluations)});
  return json ? std::optional(learning_from_json(*json)) : std::nullopt;
}

}  // namespace gpt::bench
