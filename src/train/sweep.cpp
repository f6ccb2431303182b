#include "gpt/train/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <thread>
#include <tuple>

#include "gpt/config/run_files.h"
#include "gpt/core/child_process.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/hash.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/process.h"
#include "gpt/distributed/ranks.h"
#include "gpt/report/early_loss.h"
#include "gpt/report/result_file.h"
#include "gpt/report/status_file.h"
#include "gpt/run/folder.h"
#include "gpt/run/same_run.h"
#include "gpt/train/live_page.h"

namespace gpt::train {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostRuns = 1000;
constexpr int kSignalled = 128;  // and the signal's number: the status of a program that a signal has ended

std::string text_of(const Combination& combination, const char* separator) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : combination) parts.push_back(fmt::format("{}={}", key, value));
  return fmt::format("{}", fmt::join(parts, separator));
}

std::pair<std::string, std::vector<std::string>> read_values(const std::string& text) {
  const size_t equals = text.find('=');
  std::vector<std::string> values;
  for (size_t begin = equals; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin + 1), text.size());
    values.push_back(text.substr(begin + 1, end - begin - 1));
    begin = end;
  }
  const bool has_empty = std::any_of(values.begin(), values.end(), [](const auto& value) { return value.empty(); });
  if (equals == 0 || values.empty() || has_empty)
    throw Error(ExitCode::config,
                fmt::format("--sweep: '{}' is not KEY=VALUE,VALUE without spaces, such as learning_rate=1e-3,3e-3",
                            text));
  std::vector<std::string> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    throw Error(ExitCode::config, fmt::format("--sweep: {} has the value {} twice", text.substr(0, equals), *twice));
  return {text.substr(0, equals), values};
}

// What came of one run.
struct SweptRun {
  Combination combination;
  std::string folder;
  int status = 0;            // its exit status
  ordered_json result = {};  // of result_file.h; null where it has left none
  // With --stop-poor-runs:
  bool waits = false;                           // after a third of it, until all have come so far
  bool is_poor = false;                         // and goes on no more
  std::optional<report::EarlyLoss> early = {};  // what decides about that

  bool is_done() const { return status == 0 && !waits; }
  // By a signal, which it or this process got.
  bool is_stopped() const {
    const auto code = static_cast<ExitCode>(status);
    return !waits && (code == ExitCode::hung_up || code == ExitCode::interrupted || code == ExitCode::terminated ||
                      code == ExitCode::left_unsaved);
  }
  // What may be due to the settings that the sweep changes.
  bool may_differ() const {
    const auto code = static_cast<ExitCode>(status);
    const bool is_killed = status == kSignalled + SIGKILL;  // as the kernel does where memory is over
    return code == ExitCode::numerics || code == ExitCode::memory || is_killed;
  }
  // Such as "/validation/val_loss".
  std::optional<double> number(const char* place) const {
    const ordered_json::json_pointer pointer(place);
    return result.contains(pointer) && result[pointer].is_number() ? std::optional(result[pointer].get<double>())
                                                                   : std::nullopt;
  }
  // Runs that are done come first, by what `place` has of their validation; those without it by the last loss of training.
  std::tuple<bool, bool, double> rank(const char* place) const {
    const std::optional<double> validation = number(place), loss = number("/loss");
    return {!is_done(), !validation, validation ? *validation : loss.value_or(0)};
  }
};

constexpr const char kLoss[] = "/validation/val_loss", kBits[] = "/validation/val_bits_per_byte";

bool names_time(std::string_view key) { return key == "max_time" || key == "max_minutes" || key == "max_hours"; }

// "--training.max-time=..." -> "max_time"
std::string key_of(const std::string& argument) {
  if (!argument.starts_with("--")) return "";
  std::string name =
      argument.substr(2, argument.find('=') == std::string::npos ? argument.npos : argument.find('=') - 2);
  std::replace(name.begin(), name.end(), '-', '_');
  constexpr std::string_view kSection = "training.";
  return name.starts_with(kSection) ? name.substr(kSection.size()) : name;
}

// Without those that are about the sweep, or that each run has its own of.
std::vector<std::string> arguments_for_each(const std::vector<std::string>& all, bool has_share_of_time) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string key = key_of(all[i]);
    const bool has_value = all[i].find('=') != std::string::npos;
    const bool precedes_value = !has_value && i + 1 < all.size() && !all[i + 1].starts_with('-');
    if (key == "sweep") {
      while (i + 1 < all.size() && !all[i + 1].starts_with('-')) ++i;
    } else if (key == "live") {
      i += precedes_value ? 1 : 0;
    } else if (key == "result" || key == "output_dir" || (has_share_of_time && names_time(key))) {
      i += has_value ? 0 : 1;
    } else if (key != "json" && key != "restart" && key != "stop_poor_runs") {
      kept.push_back(all[i]);
    }
  }
  return kept;
}

struct Ending {
  int status = 0;           // as waitpid() has it
  bool got_signal = false;  // to end, from this process
};

// Passes each signal on, for it may have been sent to this process alone. One that comes twice within a second changes nothing.
Ending wait_passing_signals(pid_t child) {
  constexpr std::chrono::milliseconds kPause(20);
  Ending ending;
  while (waitpid(child, &ending.status, WNOHANG) == 0) {
    if (process::take_save_request()) kill(child, SIGUSR1);
    if (const int signal = process::take_stop_signal(); signal != 0) kill(child, signal), ending.got_signal = true;
    std::this_thread::sleep_for(kPause);
  }
  return ending;
}

std::optional<report::RunStatus> status_in(const std::string& folder) {
  const std::string path = folder + "/" + kStatusFile;
  return exists(path) ? report::read_status(read_file(path, ExitCode::disk)) : std::nullopt;
}

// The early loss of the run in this folder.
std::optional<report::EarlyLoss> early_loss_in(const std::string& folder) {
  const auto status = status_in(folder);
  if (!status) return std::nullopt;
  report::RunHistory history;
  report::read_metrics(folder + "/" + kMetricsFile, status->step, history);
  return report::early_loss(history, status->total_steps);
}

class Runs {
 public:
  Runs(const config::CommandLine& command, const TrainOptions& options)
      : stops_poor_(options.stops_poor_runs),
        restarts_(options.restart),
        folder_(command.config.output_dir),
        combinations_(combinations_of(options.sweep)) {
    const Combination& first = combinations_.front();
    const bool sweeps_time =
        std::any_of(first.begin(), first.end(), [](const auto& part) { return names_time(key_of("--" + part.first)); });
    const double seconds = command.config.training.schedule.max_time.seconds;
    const bool shares_time = seconds > 0 && !sweeps_time;
    arguments_ = arguments_for_each(options.arguments, shares_time);
    if (!shares_time) return;
    const double share = std::max(1.0, std::floor(seconds / static_cast<double>(combinations_.size())));
    arguments_.insert(arguments_.end(), {"--max_time", fmt::format("{} seconds", share)});
    log::info(fmt::format("training.max_time: each of {} has {}", plural(std::ssize(combinations_), "run"),
                          format_duration(share)));
  }

  // Before the first: what is wrong with any of them.
  void require_right(const ReadCommandLine& read) const {
    std::map<std::string, std::string> names;  // of the runs, by their configurations and by their folders
    for (const Combination& combination : combinations_) {
      const config::CommandLine command = read(arguments_of(combination));
      const std::string name = text_of(combination, ", ");
      if (command.handled) throw Error(ExitCode::config, fmt::format("--sweep: {} is no setting of a run", name));
      run::require_run_data(command.config, name);
      Config config = command.config;
      config.output_dir.clear();
      for (const std::string& what : {config::dump(config), folder_of(combination)}) {
        const auto [same, is_new] = names.emplace(what, name);
        if (!is_new)
          throw Error(ExitCode::config, fmt::format("--sweep: {} and {} would be the same run", same->second, name));
      }
    }
    if (run::holds_checkpoint(folder_)) {
      throw Error(ExitCode::config,
                  fmt::format("{} holds a run of its own: give the sweep another folder with --output_dir, such as {}",
                              folder_, run::next_free_folder(folder_)));
    }
    create_folders(folder_);
  }

  // Runs all up to one that is stopped, or up to the first, where it fails as all others would.
  std::vector<SweptRun> run_all() const {
    std::vector<SweptRun> runs;
    for (const Combination& combination : combinations_) {
      log::info(fmt::format("Run {} of {}: {}", runs.size() + 1, combinations_.size(), text_of(combination, ", ")));
      runs.push_back(stops_poor_ ? begin(combination) : run(combination, restarts_));
      const SweptRun& last = runs.back();
      if (ends_sweep(last) || (runs.size() == 1 && !last.is_done() && !last.waits && !last.may_differ())) return runs;
    }
    if (stops_poor_) go_on(runs);
    return runs;
  }

 private:
  std::string folder_of(const Combination& combination) const {
    constexpr size_t kLongest = 200, kKept = 150;
    std::string name = text_of(combination, ",");
    std::replace(name.begin(), name.end(), '/', '_');
    if (name.size() > kLongest) name = shortened(name, kKept) + hash128(name);
    return folder_ + "/" + name;
  }

  std::vector<std::string> arguments_of(const Combination& combination) const {
    std::vector<std::string> arguments = arguments_;
    for (const auto& [key, value] : combination) arguments.insert(arguments.end(), {"--" + key, value});
    arguments.insert(arguments.end(), {"--output_dir", folder_of(combination)});
    return arguments;
  }

  static bool ends_sweep(const SweptRun& run) {
    return run.is_stopped() || static_cast<ExitCode>(run.status) == ExitCode::disk;
  }

  // Trains as far as it takes to judge the run. One that an earlier start of the sweep has brought there stops at once.
  SweptRun begin(const Combination& combination) const {
    SweptRun begun = run(combination, restarts_, /*to_third=*/true);
    if (begun.waits || begun.is_done()) begun.early = early_loss_in(begun.folder);
    return begun;
  }

  // All have come to where they are judged, and those that are not poor go on, up to one that is stopped.
  void go_on(std::vector<SweptRun>& runs) const {
    std::vector<std::optional<report::EarlyLoss>> losses;
    for (const SweptRun& run : runs) losses.push_back(run.early);
    const std::vector<bool> are_poor = report::find_poor(losses);
    for (size_t i = 0; i < runs.size(); ++i) {
      if (!runs[i].waits) continue;
      const std::string name = fmt::format("Run {} of {}: {}", i + 1, runs.size(), text_of(runs[i].combination, ", "));
      const std::string loss =
          runs[i].early ? fmt::format("val loss {:.4f} after a third of it", runs[i].early->loss) : "not judged";
      if (are_poor[i]) {
        runs[i].is_poor = true;
        log::info(fmt::format("{}: {}, in the worse half: it ends (--stop-poor-runs)", name, loss));
        continue;
      }
      log::info(fmt::format("{}: {}, goes on", name, loss));
      runs[i] = run(runs[i].combination, /*restarts=*/false);
      if (ends_sweep(runs[i])) return;
    }
  }

  static ordered_json result_in(const std::string& folder) {
    const std::string file = folder + "/result.json";
    if (!exists(file)) return {};
    return ordered_json::parse(read_file(file, ExitCode::disk), nullptr, /*allow_exceptions=*/false);
  }

  SweptRun run(const Combination& combination, bool restarts, bool to_third = false) const {
    const std::string folder = folder_of(combination), file = folder + "/result.json";
    create_folders(folder);
    std::vector<std::string> command = arguments_of(combination);
    command.insert(command.begin(), path_of_this_program());
    command.insert(command.end(), {"--result", file});
    if (restarts) {
      command.emplace_back("--restart");
      std::error_code ignored;
      std::filesystem::remove(file, ignored);  // a run that is refused now leaves none of its own
    }
    if (to_third) command.emplace_back("--stop-at-third");
    const Ending ending = wait_passing_signals(start_child(command, {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}));
    SweptRun run{.combination = combination,
                 .folder = folder,
                 .status =
                     WIFSIGNALED(ending.status) ? kSignalled + WTERMSIG(ending.status) : WEXITSTATUS(ending.status),
                 .result = result_in(folder)};
    run.waits = to_third && !ending.got_signal && static_cast<ExitCode>(run.status) == ExitCode::terminated;
    if (run.waits) run.status = 0;  // as asked
    return run;
  }

  bool stops_poor_, restarts_;
  std::string folder_;
  std::vector<std::string> arguments_;
  std::vector<Combination> combinations_;
};

std::string what_happened(const SweptRun& run) {
  if (run.waits) return run.is_poor ? "poor" : "waits";
  if (run.is_done()) return "done";
  if (run.status > kSignalled) {
    const char* const name = sigabbrev_np(run.status - kSignalled);
    return fmt::format("SIG{}", name ? name : "?");
  }
  switch (static_cast<ExitCode>(run.status)) {
    case ExitCode::numerics: return "diverged";
    case ExitCode::memory: return "no memory";
    default: return fmt::format("exit {}", run.status);
  }
}

std::string table_of(const std::vector<SweptRun>& runs) {
  const auto cell = [](const std::optional<double>& value, int digits) {
    return value ? fmt::format("{:.{}f}", *value, digits) : "-";
  };
  constexpr const char* kRow = "{:>8}  {:>9}  {:>8}  {:>13}  {:>8}  {:<9}  {}\n";
  std::string table =
      fmt::format(fmt::runtime(kRow), "val loss", "bits/byte", "loss", "tokens", "seconds", "", "settings");
  for (const SweptRun& run : runs) {
    const auto tokens = run.number("/tokens");
    table +=
        fmt::format(fmt::runtime(kRow), cell(run.number(kLoss), 4), cell(run.number(kBits), 4),
                    cell(run.number("/loss"), 4), tokens ? with_commas(static_cast<int64_t>(*tokens)) : "-",
                    cell(run.number("/seconds/updates_in_all"), 1), what_happened(run), text_of(run.combination, " "));
  }
  return table;
}

std::string json_of(const std::vector<SweptRun>& runs) {
  ordered_json list = ordered_json::array();
  for (const SweptRun& run : runs) {
    ordered_json object{{"sweep", ordered_json::object()}, {"output_dir", run.folder}, {"status", run.status}};
    for (const auto& [key, value] : run.combination) object["sweep"][key] = value;
    if (run.is_poor) object["is_poor"] = true;
    object["result"] = run.result;
    list.push_back(std::move(object));
  }
  return list.dump(2, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) + "\n";
}

// By bits per byte where all have them, because losses of different tokens say nothing beside each other.
void tell(const TrainOptions& options, std::vector<SweptRun> runs) {
  const bool have_bits =
      std::all_of(runs.begin(), runs.end(), [](const auto& run) { return !run.number(kLoss) || run.number(kBits); });
  const char* const place = have_bits ? kBits : kLoss;
  std::stable_sort(runs.begin(), runs.end(),
                   [place](const auto& a, const auto& b) { return a.rank(place) < b.rank(place); });
  if (!options.result.empty()) {
    AtomicFile file(options.result);
    file.write(json_of(runs));
    file.commit();
  }
  print(options.json ? json_of(runs) : table_of(runs));
}

// The exit code of the first run that has failed otherwise than by its settings; where none is done, of the first.
ExitCode code_of(const std::vector<SweptRun>& runs) {
  const bool any_done = std::any_of(runs.begin(), runs.end(), [](const SweptRun& run) { return run.is_done(); });
  const auto failed = std::find_if(runs.begin(), runs.end(), [any_done](const SweptRun& run) {
    return !run.is_done() && !run.waits && !(any_done && run.may_differ());
  });
  return failed == runs.end() ? ExitCode::ok : static_cast<ExitCode>(failed->status);
}

}  // namespace

std::vector<Combination> combinations_of(const std::vector<std::string>& values) {
  std::vector<Combination> all{{}};
  for (const std::string& text : values) {
    const auto [key, each] = read_values(text);
    for (const auto& [earlier, value] : all.front())
      if (earlier == key) throw Error(ExitCode::config, fmt::format("--sweep: {} is given twice", key));
    std::vector<Combination> longer;
    for (const Combination& shorter : all) {
      for (const std::string& value : each) {
        longer.push_back(shorter);
        longer.back().emplace_back(key, value);
      }
    }
    if (longer.size() > kMostRuns)
      throw Error(ExitCode::config, fmt::format("--sweep: these are more than {} runs", kMostRuns));
    all = std::move(longer);
  }
  return all;
}

ExitCode run_sweep(const config::CommandLine& command, const TrainOptions& options, const ReadCommandLine& read) {
  if (options.eval_only || options.find_lr || options.stops_at_third || !options.replay.empty())
    throw Error(ExitCode::config,
                "--sweep trains runs: leave out --eval-only, --find-lr, --replay and --stop-at-third");
  if (const distributed::Ranks ranks = distributed::find_ranks(); ranks.size > 1)
    throw Error(ExitCode::config, fmt::format("--sweep starts its runs itself; start it without {}", ranks.launcher));
  const Runs runs(command, options);
  runs.require_right(read);
  if (!options.result.empty()) report::require_result_file(options.result);
  if (!options.live.empty()) (void)live_address(options.live);
  process::watch_signals();
  process::leave_stopping_to_children();
  const LivePage page(command.config.output_dir, options.live, options.control);
  std::vector<SweptRun> all = runs.run_all();
  const auto stopped = std::find_if(all.begin(), all.end(), [](const SweptRun& run) { return run.is_stopped(); });
  if (stopped != all.end()) {
    log::info(fmt::format("The sweep is stopped; the same command{} goes on with it",
                          options.restart ? " without --restart" : ""));
    return static_cast<ExitCode>(stopped->status);
  }
  const SweptRun& first = all.front();
  if (all.size() == 1 && !first.is_done() && !first.waits && !first.may_differ())
    return static_cast<ExitCode>(first.status);  // it has said why
  const ExitCode code = code_of(all);
  tell(options, std::move(all));
  return code;
}

}  // namespace gpt::train
