#include "gpt/bench/measurement.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/process.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/optim/lr_schedule.h"
#include "gpt/prepare/load_corpus.h"
#include "gpt/train/run_plan.h"
#include "gpt/train/run_state.h"
#include "gpt/train/train_step.h"

namespace gpt {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Updates of a run that learns, with the learning rates of its beginning.
class Updates {
 public:
  Updates(RunState& state, TrainStep& step, const Config& config, const RunPlan& plan, at::Device device)
      : state_(state), step_(step), schedule_(config.training.schedule), plan_(plan), device_(device) {}

  // Runs one; the tokens that it took.
  int64_t next() {
    const auto tokens = run_update(step_, state_.loader, plan_.micro_batches(state_.step),
                                   learning_rate_at(schedule_, state_.step, plan_.total_steps),
                                   [] { return process::stop_signal() != 0; });
    if (!tokens || process::stop_signal() != 0) throw Error(ExitCode::interrupted, "interrupted");
    ++state_.step;
    synchronize(device_);  // sync: the update is timed
    return *tokens;
  }
  double loss() const { return step_.loss().item<double>(); }  // sync: reads the device

 private:
  RunState& state_;
  TrainStep& step_;
  ScheduleConfig schedule_;
  const RunPlan& plan_;
  at::Device device_;
};

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// Runs the command with its output in `log`; the status that waitpid() gives.
int run_command(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int failure = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    throw Error(ExitCode::failed_check, fmt::format("cannot start {}: {}", command[0], std::strerror(failure)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return status;
}

}  // namespace

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

Measurement measure(Config config, const MeasurementLength& length) {
  constexpr int64_t kLastLosses = 10;
  const auto begin = Clock::now();
  const Corpus corpus = load_corpus(config.data, config.model.block_size, "", config.model.vocab_size);
  config.model.vocab_size = vocabulary_for(corpus, config.model.vocab_size);
  const DeviceInfo device = describe_device(select_device(config.device).device);
  const Precision precision = resolve_precision(config.training.precision, device);
  apply_precision(precision, config.training.execution.deterministic);
  RunState state(config, corpus, device.device, precision);
  Recorder recorder = recorder_for(config.training, config.model, device.device);
  const bool is_recorded = recorder.records();
  const int64_t warm_up = std::max<int64_t>(length.warm_up, is_recorded ? Recorder::kRunsBefore + 1 : 0);
  TrainStep step(state.model, state.optimizer, state.scaler, precision, config.training, std::move(recorder));
  const RunPlan plan = plan_run(config.training, state.loader.batches_per_epoch());
  Updates updates(state, step, config, plan, device.device);

  Measurement result;
  result.start_seconds = seconds_since(begin);
  for (int64_t i = 0; i < warm_up; ++i) updates.next();
  std::vector<double> seconds;
  std::vector<double> losses;
  int64_t tokens = 0;
  double cpu = 0;
  for (int64_t i = 0; i < length.updates; ++i) {
    const double cpu_before = cpu_seconds();
    const auto before = Clock::now();
    tokens += updates.next();
    seconds.push_back(seconds_since(before));
    cpu += cpu_seconds() - cpu_before;
    if (i >= length.updates - kLastLosses) losses.push_back(updates.loss());
  }
  if (is_recorded && !step.is_recorded())
    throw Error(ExitCode::failed_check, "the step could not be recorded as CUDA graphs");
  const double update = median(seconds), count = static_cast<double>(length.updates);
  result.step_ms = 1000 * update;
  result.cpu_ms = 1000 * cpu / count;
  result.tokens_per_second = static_cast<double>(tokens) / count / update;
  result.peak_bytes = peak_allocated_bytes(device.device);
  for (const double loss : losses) result.loss += loss / static_cast<double>(losses.size());
  return result;
}

std::string to_json(const Measurement& m) {
  return nlohmann::ordered_json{
      {"step_ms", m.step_ms},       {"cpu_ms", m.cpu_ms}, {"tokens_per_second", m.tokens_per_second},
      {"peak_bytes", m.peak_bytes}, {"loss", m.loss},     {"start_seconds", m.start_seconds}}
      .dump();
}

Measurement measurement_from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  // JSON writes what is not a number as null.
  const auto number = [&json](const char* key) {
    return json.at(key).is_null() ? std::numeric_limits<double>::quiet_NaN() : json.at(key).get<double>();
  };
  return {.step_ms = number("step_ms"),
          .cpu_ms = number("cpu_ms"),
          .tokens_per_second = number("tokens_per_second"),
          .peak_bytes = json.at("peak_bytes").get<int64_t>(),
          .loss = number("loss"),
          .start_seconds = number("start_seconds")};
}

std::optional<Measurement> measure_apart(const std::string& program, const std::string& folder, const Config& config,
                                         const MeasurementLength& length) {
  const std::string settings = folder + "/measured.yaml", result = folder + "/measured.json",
                    log = folder + "/measured.log";
  AtomicFile file(settings);
  file.write(config::dump(config));
  file.commit(Durability::unsynced);
  const int status =
      run_command({program, "measure", "--config", settings, "--warm-up", fmt::format("{}", length.warm_up),
                   "--updates", fmt::format("{}", length.updates), "--result", result},
                  log);
  if (process::stop_signal() != 0) return std::nullopt;
  if (WIFSIGNALED(status)) {
    throw Error(ExitCode::failed_check,
                fmt::format("the measurement was ended by SIG{}", sigabbrev_np(WTERMSIG(status))));
  }
  if (WEXITSTATUS(status) != 0) {
    std::string why = last_line(read_file(log, ExitCode::disk));
    constexpr std::string_view kPrefix = "error: ";
    if (why.starts_with(kPrefix)) why.erase(0, kPrefix.size());
    throw Error(static_cast<ExitCode>(WEXITSTATUS(status)), why);
  }
  return measurement_from_json(read_file(result, ExitCode::disk));
}

}  // namespace gpt
