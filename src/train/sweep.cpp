#include "gpt/train/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "gpt/core/child_process.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/process.h"
#include "gpt/distributed/ranks.h"
#include "gpt/report/result_file.h"
#include "gpt/run/folder.h"

namespace gpt {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostRuns = 1000;

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
                fmt::format("--sweep: '{}' is no key with values, such as learning_rate=1e-3,3e-3", text));
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
  int status = 0;  // its exit status
  ordered_json result = {};

  bool is_fault_of_all() const {
    const auto code = static_cast<ExitCode>(status);
    return code == ExitCode::config || code == ExitCode::data;
  }
  // Such as "/validation/val_loss", where the run is done and has one.
  std::optional<double> number(const char* place) const {
    const ordered_json::json_pointer pointer(place);
    return result.contains(pointer) && result[pointer].is_number() ? std::optional(result[pointer].get<double>())
                                                                   : std::nullopt;
  }
  // Runs that are done come before others, by their validation loss or, without one, the last of training.
  std::pair<bool, double> rank() const {
    const std::optional<double> validation = number("/validation/val_loss"),
                                loss = validation ? validation : number("/loss");
    return {!loss, loss.value_or(0)};
  }
};

// Without those that are about the sweep, or that each run has its own of.
std::vector<std::string> arguments_for_each(const std::vector<std::string>& all) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string name = all[i].substr(0, all[i].find('='));
    const bool has_value = all[i].size() > name.size();
    if (name == "--sweep") {
      while (i + 1 < all.size() && !all[i + 1].starts_with('-')) ++i;
    } else if (name == "--result" || name == "--output_dir") {
      i += has_value ? 0 : 1;
    } else if (name != "--json") {
      kept.push_back(all[i]);
    }
  }
  return kept;
}

class Runs {
 public:
  Runs(const config::CommandLine& command, const TrainOptions& options)
      : folder_(command.config.output_dir),
        arguments_(arguments_for_each(options.arguments)),
        combinations_(combinations_of(options.sweep)) {}

  // Before the first: what is wrong with any of them.
  void require_right(const ReadCommandLine& read) const {
    for (const Combination& combination : combinations_) (void)read(arguments_of(combination));
    if (run::holds_checkpoint(folder_)) {
      throw Error(ExitCode::config,
                  fmt::format("{} holds a run of its own: give the sweep another folder with --output_dir, such as {}",
                              folder_, run::next_free_folder(folder_)));
    }
    create_folders(folder_);
  }

  // Up to one that has ended as all others would, or by a signal.
  std::vector<SweptRun> run_all() const {
    std::vector<SweptRun> runs_done;
    for (const Combination& combination : combinations_) {
      log::info(
          fmt::format("Run {} of {}: {}", runs_done.size() + 1, combinations_.size(), text_of(combination, ", ")));
      runs_done.push_back(run(combination));
      if (process::stop_signal() != 0 || runs_done.back().is_fault_of_all()) break;
    }
    return runs_done;
  }

 private:
  std::string folder_of(const Combination& combination) const {
    std::string name = text_of(combination, ",");
    std::replace(name.begin(), name.end(), '/', '_');
    return folder_ + "/" + name;
  }

  std::vector<std::string> arguments_of(const Combination& combination) const {
    std::vector<std::string> arguments = arguments_;
    for (const auto& [key, value] : combination) arguments.insert(arguments.end(), {"--" + key, value});
    arguments.insert(arguments.end(), {"--output_dir", folder_of(combination)});
    return arguments;
  }

  SweptRun run(const Combination& combination) const {
    const std::string folder = folder_of(combination), file = folder + "/result.json";
    create_folders(folder);
    std::vector<std::string> command = arguments_of(combination);
    command.insert(command.begin(), path_of_this_program());
    command.insert(command.end(), {"--result", file});
    const int status = wait_for_child(start_child(command, {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}));
    constexpr int kSignalled = 128;
    SweptRun one{.combination = combination,
                 .folder = folder,
                 .status = WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status)};
    if (one.status == 0)
      one.result = ordered_json::parse(read_file(file, ExitCode::disk), nullptr, /*allow_exceptions=*/false);
    return one;
  }

  std::string folder_;
  std::vector<std::string> arguments_;
  std::vector<Combination> combinations_;
};

std::string what_happened(int status) {
  switch (static_cast<ExitCode>(status)) {
    case ExitCode::numerics: return "diverged";
    case ExitCode::memory: return "out of memory";
    default: return fmt::format("exit status {}", status);
  }
}

std::string table_of(const std::vector<SweptRun>& runs_done) {
  const auto cell = [](const std::optional<double>& value, int digits) {
    return value ? fmt::format("{:.{}f}", *value, digits) : "-";
  };
  std::string table =
      fmt::format("{:>8}  {:>9}  {:>13}  {:>8}  settings\n", "val loss", "bits/byte", "tokens", "seconds");
  for (const SweptRun& one : runs_done) {
    const auto tokens = one.number("/tokens");
    table += fmt::format("{:>8}  {:>9}  {:>13}  {:>8}  {}\n", cell(one.number("/validation/val_loss"), 4),
                         cell(one.number("/validation/val_bits_per_byte"), 4),
                         tokens ? with_commas(static_cast<int64_t>(*tokens)) : what_happened(one.status),
                         cell(one.number("/seconds/updates"), 1), text_of(one.combination, " "));
  }
  return table;
}

std::string json_of(const std::vector<SweptRun>& runs_done) {
  ordered_json list = ordered_json::array();
  for (const SweptRun& one : runs_done) {
    ordered_json object{{"sweep", ordered_json::object()}, {"output_dir", one.folder}, {"status", one.status}};
    for (const auto& [key, value] : one.combination) object["sweep"][key] = value;
    object["result"] = one.result;
    list.push_back(std::move(object));
  }
  return list.dump(2, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) + "\n";
}

void tell(const TrainOptions& options, std::vector<SweptRun> runs_done) {
  std::stable_sort(runs_done.begin(), runs_done.end(),
                   [](const SweptRun& a, const SweptRun& b) { return a.rank() < b.rank(); });
  if (!options.result.empty()) {
    AtomicFile file(options.result);
    file.write(json_of(runs_done));
    file.commit();
  }
  print(options.json ? json_of(runs_done) : table_of(runs_done));
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
  if (options.eval_only || options.find_lr || !options.replay.empty())
    throw Error(ExitCode::config, "--sweep trains runs: leave out --eval-only, --find-lr and --replay");
  if (const distributed::Ranks ranks = distributed::find_ranks(); ranks.size > 1)
    throw Error(ExitCode::config, fmt::format("--sweep starts its runs itself; start it without {}", ranks.launcher));
  const Runs runs(command, options);
  runs.require_right(read);
  if (!options.result.empty()) require_result_file(options.result);
  process::watch_signals();
  std::vector<SweptRun> runs_done = runs.run_all();
  if (process::stop_signal() != 0) {
    log::info("The sweep is stopped; the same command goes on with it");
    return process::stop_code();
  }
  if (runs_done.back().is_fault_of_all()) return static_cast<ExitCode>(runs_done.back().status);  // as the run has said
  tell(options, std::move(runs_done));
  return ExitCode::ok;
}

}  // namespace gpt
