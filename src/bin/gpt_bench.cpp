// gpt-bench: what each optimization is worth on this machine.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpt/bench/ladder.h"
#include "gpt/bench/measurement.h"
#include "gpt/bench/operators.h"
#include "gpt/bench/results.h"
#include "gpt/config/load.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/prepare/load_corpus.h"
#include "gpt/train/surroundings.h"

namespace {

using namespace gpt;

constexpr const char* kUsage =
    "usage: gpt-bench ladder [--config FILE] [--KEY VALUE ...]\n"
    "       gpt-bench combo NAME+NAME... [--config FILE] [--KEY VALUE ...]\n"
    "       gpt-bench ops [--config FILE] [--KEY VALUE ...]\n\n"
    "Measure what each optimization is worth on this machine: whole steps on real data, with a check that the losses agree,\n"
    "or operators one by one.\n\n"
    "  ladder  from plain float32 upwards, one optimization at a time, then each taken away from the full set\n"
    "  combo   only some optimizations of the ladder, in the order in which they are named\n"
    "  ops     each operator of the model beside LibTorch's and beside what the machine can do\n\n"
    "gpt-bench ladder --help lists the options. Results go to benchmark_results: a table, JSON and a chart.\n";

struct Options {
  double minutes = 10;
  std::string results = "benchmark_results";
  int64_t warm_up = 5, updates = 30;  // of `measure`
  std::string result;
};

// The run that is measured where none is named: the one that gpt-train chooses for this machine and the installed text.
void complete(Config& config, const config::Origins& origins) {
  const DataConfig& data = config.data;
  if (data.text.empty() && data.bin.empty() && data.dataset == DatasetName::none)
    config.data.dataset = DatasetName::shakespeare;
  choose_for_this_machine(config, origins);
}

std::string path_of_this_program() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) throw Error(ExitCode::failed_check, "cannot find this program: /proc/self/exe cannot be read");
  return {path, static_cast<size_t>(size)};
}

// Removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "gpt-bench-XXXXXX").string();
    if (!mkdtemp(path.data())) throw Error(ExitCode::disk, "cannot create a temporary folder: " + path);
    path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

// Shows what is being measured and how long it will take.
class Status {
 public:
  explicit Status(double seconds) : seconds_(seconds) {}
  ~Status() { log::status(""); }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  void show(double share, const std::string& what) const {
    constexpr double kKnown = 0.05;  // of the work, from which its speed is known
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    const double left = share > kKnown ? passed.count() / share * (1 - share) : seconds_ - passed.count();
    const std::string text =
        fmt::format("measuring {:.0f}%: {}, about {} left", 100 * share, what, format_duration(std::max(0.0, left)));
    log::is_terminal() ? log::status(text) : log::info(text);
  }

 private:
  double seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// The rungs that `names` joins with '+'.
std::vector<Rung> chosen_rungs(const std::string& names, const std::vector<Rung>& all) {
  std::vector<Rung> result;
  for (size_t at = 0; at <= names.size();) {
    const size_t end = std::min(names.find('+', at), names.size());
    const std::string name = names.substr(at, end - at);
    const auto found = std::find_if(all.begin(), all.end(), [&](const Rung& rung) { return rung.name == name; });
    if (found == all.end()) {
      std::string known;
      for (const Rung& rung : all) known += (known.empty() ? "" : ", ") + rung.name;
      throw Error(ExitCode::config, fmt::format("gpt-bench combo: there is no optimization {}; there are {}",
                                                config::in_quotes(name), known));
    }
    if (!found->obstacle.empty())
      throw Error(ExitCode::config, fmt::format("gpt-bench combo: {} cannot be measured: {}", name, found->obstacle));
    result.push_back(*found);
    at = end + 1;
  }
  const auto has = [&result](const char* name) {
    return std::any_of(result.begin(), result.end(), [name](const Rung& rung) { return rung.name == name; });
  };
  if (has("graph") && !(has("compile") && has("adamw")))
    throw Error(ExitCode::config, "gpt-bench combo: graph needs compile and adamw: name adamw+compile+graph");
  return result;
}

int measure_one(const Config& config, const Options& options) {
  const std::string json = to_json(measure(config, {.warm_up = options.warm_up, .updates = options.updates}));
  if (options.result.empty()) {
    std::puts(json.c_str());
    return 0;
  }
  AtomicFile file(options.result);
  file.write(json);
  file.commit(Durability::unsynced);
  return 0;
}

BenchResults results_for(const Config& config, const std::string& title, const std::string& command) {
  BenchResults results{.title = title,
                       .command = command,
                       .date = now(),
                       .device = describe_device(select_device(config.device).device),
                       .config = config,
                       .ladder = {}};
  results.threads = config.threads > 0 ? config.threads : sysconf(_SC_NPROCESSORS_ONLN);
  return results;
}

int show(const BenchResults& results, const Options& options) {
  const std::string path = write_results(results, options.results), text = to_markdown(results);
  std::fwrite(text.data(), 1, text.size(), stdout);
  log::success(fmt::format("Written: {}.md, .json and .svg", path));
  return results.complete() ? 0 : static_cast<int>(process::stop_code());
}

int climb_ladder(const Config& config, const Options& options, const std::string& title, const std::string& names,
                 const std::string& command) {
  BenchResults results = results_for(config, title, command);
  std::vector<Rung> rungs = gpt::rungs(config, results.device);
  if (!names.empty()) rungs = chosen_rungs(names, rungs);
  create_folders(options.results);  // found out before anything is measured
  const std::string program = path_of_this_program();
  const TemporaryFolder folder;
  const double seconds = 60 * options.minutes;
  {
    const Status status(seconds);
    results.ladder = climb(
        config, rungs, seconds,
        [&](const Config& measured, const MeasurementLength& length) {
          return measure_apart(program, folder.path(), measured, length);
        },
        [&status](double share, const std::string& what) { status.show(share, what); });
  }
  if (results.ladder.rows.empty()) return static_cast<int>(process::stop_code());
  return show(results, options);
}

// In the precision of a run with this configuration; 16 bits as they are used end to end.
int measure_operators_of(Config config, const Options& options, const std::string& command) {
  const Corpus corpus = load_corpus(config.data, config.model.block_size, "", config.model.vocab_size);
  config.model.vocab_size = vocabulary_for(corpus, config.model.vocab_size);
  BenchResults results = results_for(config, "ops", command);
  const Precision precision = resolve_precision(config.training.precision, results.device);
  apply_precision(precision, config.training.execution.deterministic);
  create_folders(options.results);  // found out before anything is measured
  {
    const Status status(60 * options.minutes);
    results.operators = measure_operators(config, results.device, precision.compute_type(), 60 * options.minutes,
                                          [&status](double share, const std::string& name) {
                                            status.show(share, name);
                                            return process::stop_signal() == 0;
                                          });
  }
  if (results.operators.rows.empty()) return static_cast<int>(process::stop_code());
  return show(results, options);
}

int bench(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "--help";
  if (verb == "--help" || verb == "-h") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const bool is_combo = verb == "combo";
  const bool is_ops = verb == "ops";
  if (verb != "ladder" && verb != "measure" && !is_combo && !is_ops)
    throw Error(ExitCode::config,
                fmt::format("gpt-bench: unknown command {}; use ladder, combo or ops", config::in_quotes(verb)));
  if (is_combo && (argc < 3 || argv[2][0] == '-'))
    throw Error(ExitCode::config, "gpt-bench combo: name the optimizations, such as compile+adamw");
  const int used = is_combo ? 2 : 1;
  Options options;
  if (is_ops) options.minutes = 1;
  const auto command = config::parse_command_line(
      argc - used, argv + used, "gpt-bench " + verb, "Measure what each optimization is worth on this machine.",
      {{.name = "minutes", .target = &options.minutes, .help = "about how long it may take", .min = 0.1, .max = 10000},
       {.name = "results", .target = &options.results, .help = "the folder for table, JSON and chart"},
       {.name = "warm-up",
        .target = &options.warm_up,
        .help = "of measure: updates before the clock starts",
        .min = 0,
        .max = 1e6},
       {.name = "updates",
        .target = &options.updates,
        .help = "of measure: updates that are timed",
        .min = 1,
        .max = 1e6},
       {.name = "result",
        .target = &options.result,
        .help = "of measure: the file for the result; empty = standard output"}},
      complete);
  if (command.handled) return 0;
  process::watch_signals();
  if (verb == "measure" || is_ops) {
    use_cpu_threads(command.config.threads);
    use_cpu_allocator();
  }
  if (verb == "measure") return measure_one(command.config, options);
  std::string typed = "gpt-bench";
  for (int i = 1; i < argc; ++i) typed += fmt::format(" {}", argv[i]);
  if (is_ops) return measure_operators_of(command.config, options, typed);
  return climb_ladder(command.config, options, verb, is_combo ? argv[2] : "", typed);
}

}  // namespace

int main(int argc, char** argv) { return gpt::process::run(argc, argv, bench); }
