#include "gpt/bench/commands.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "gpt/bench/apart.h"
#include "gpt/bench/architecture.h"
#include "gpt/bench/experiments.h"
#include "gpt/bench/ladder.h"
#include "gpt/bench/measurement.h"
#include "gpt/bench/modes.h"
#include "gpt/bench/operators.h"
#include "gpt/bench/results.h"
#include "gpt/bench/rung.h"
#include "gpt/bench/savers.h"
#include "gpt/bench/scaling.h"
#include "gpt/bench/status.h"
#include "gpt/bench/step_profile.h"
#include "gpt/config/arguments.h"
#include "gpt/config/batch.h"
#include "gpt/config/load.h"
#include "gpt/config/suggest.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/process.h"
#include "gpt/core/terminal.h"
#include "gpt/core/text_table.h"
#include "gpt/core/version.h"
#include "gpt/device/cards.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/device/device.h"
#include "gpt/device/host.h"
#include "gpt/device/precision.h"
#include "gpt/plan/automatic_sizes.h"
#include "gpt/plan/resolve.h"

namespace gpt::bench {
namespace {

struct Options {
  double minutes = 0;
  std::string results = "benchmark_results";
  int64_t epochs = 3, iterations = 0;  // for `modes`
  int64_t warm_up = 5, updates = 30;   // for `measure`; `learn` takes `updates` too
  int64_t evaluations = 8;             // for `learn`
  std::string result;                  // for `measure`, `machine` and `learn`
  std::string names, command;          // the names for `combo`; the command as it was typed
  ScalingOptions scaling;
};

// The run that is measured where none is named: the one that gpt-train chooses for this machine and the installed text, but with AdamW and
// a cosine, beside which other optimizers and schedules are measured.
void complete(Config& config, const config::Origins& origins) {
  const DataConfig& data = config.data;
  if (data.text.empty() && data.bin.empty() && data.dataset == DatasetName::none)
    config.data.dataset = DatasetName::shakespeare;
  config::Origins kept = origins;
  if (config.training.init_from.empty())
    for (const char* key : {"training.optimizer", "training.learning_rate", "training.lr_schedule"})
      kept.emplace(key, "here");
  plan::choose_for_this_machine(config, kept);
}

std::string now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

int put_result(const std::string& json, const Options& options) {
  if (options.result.empty()) {
    output::write(json + "\n");
    return 0;
  }
  AtomicFile file(options.result);
  file.write(json);
  file.commit(Durability::unsynced);
  return 0;
}

BenchResults results_for(const Wanted& wanted, const char* title, const Options& options) {
  create_folders(options.results);  // found out before anything is measured
  const at::Device device = device::select_device(wanted.config.device).device;
  return {.title = title,
          .command = options.command,
          .date = now(),
          .device = device::describe_device(device),
          .machine = this_machine(device),
          .wanted = wanted,
          .findings = {}};
}

int show(const BenchResults& results, const Options& options) {
  const std::string path = write_results(results, options.results),
                    text = isatty(STDOUT_FILENO) ? to_plain_text(results, terminal_columns(STDOUT_FILENO))
                                                 : to_markdown(results);
  print(text);
  log::success(fmt::format("Written: {}.md, .json and .svg", path));
  return results.findings.complete ? 0 : static_cast<int>(process::stop_code());
}

// A run of a verb that leaves results: what it found, or nothing when a signal stopped it before there was anything.
using Found = std::optional<Findings>;

struct Context {
  const Wanted& wanted;
  const device::DeviceInfo& device;
  const Options& options;
  double seconds;  // time that it may take
  const Config& config = wanted.config;

  Progress progress() const { return show_status(seconds); }
};

Found climb_as_planned(LadderPlan plan, const Context& context) {
  plan.speed_of = machine_speed_apart;
  const Ladder ladder = climb(context.wanted, plan, measure_apart, context.progress());
  return ladder.rows.empty() ? Found() : findings(ladder);
}

Found climb_rungs(const Context& context) {
  return climb_as_planned({.rungs = rungs(context.config, context.device),
                           .variants = variants(context.device),
                           .seconds = context.seconds},
                          context);
}

Found climb_named_rungs(const Context& context) {
  return climb_as_planned({.rungs = named_rungs(context.options.names, all_rungs(context.config, context.device)),
                           .variants = variants(context.device),
                           .keeps_all = true,
                           .seconds = context.seconds},
                          context);
}

Found compare_modes(const Context& context) {
  const ModesEffort effort{.epochs = context.options.epochs,
                           .iterations = context.options.iterations,
                           .seconds = context.seconds};
  const Modes modes = measure_modes(context.wanted, context.device, effort, measure_apart, context.progress());
  return !modes.rows.front().measurement ? Found() : findings(modes);
}

Found compare_variants(const Context& context) {
  const ArchitectureComparison comparison =
      compare_architectures(context.wanted, context.seconds, measure_apart, learn_apart, context.progress());
  return comparison.variants.empty() ? Found() : findings(comparison);
}

Found compare_techniques(const Context& context) {
  if (context.config.training.schedule.finds_learning_rate) {
    throw Error(ExitCode::config,
                "gpt-bench experiments: learning_rate: auto is not looked for here; name the rate that gpt-train "
                "--find-lr finds");
  }
  ExperimentLog log(context.options.results, context.config, context.seconds, host::cpu_name());
  if (!log.is_new()) log::info(fmt::format("Going on with {}", log.path()));
  const ExperimentComparison comparison =
      compare_experiments(context.wanted, experiments(context.config), context.seconds, log, measure_apart, learn_apart,
                          context.progress());
  return comparison.rows.empty() ? Found() : findings(comparison);
}

Found compare_savers(const Context& context) {
  const Savings savings = measure_savers(context.wanted, savers(context.wanted, context.device), context.seconds,
                                         measure_apart, context.progress());
  return savings.rows.empty() ? Found() : findings(savings);
}

Found simulate_devices(const Context& context) {
  return findings(simulate_scaling(context.wanted, context.options.scaling));
}

Found profile_run(const Context& context) {
  return findings(profile_steps(context.wanted, context.seconds, context.progress()));
}

// In the precision of a run with this configuration; 16 bits as they are used end to end.
Found measure_operators_of(const Context& context) {
  const run::Setup setup = plan::resolve(context.config);
  const OperatorSpeeds speeds =
      measure_operators(setup.config, setup.device, setup.precision.compute_type(), context.seconds,
                        [show_status = context.progress()](double share, const std::string& what) {
                          show_status(share, what);
                          return process::stop_signal() == 0;
                        });
  return speeds.rows.empty() ? Found() : findings(speeds);
}

// One measurement in this process, as JSON.
std::string measure_one(const Config& config, const Options& options) {
  return to_json(measure(config, {.warm_up = options.warm_up, .updates = options.updates}));
}

std::string measure_machine_of(const Config& config, const Options& /*options*/) {
  const device::DeviceInfo device = device::describe_device(device::select_device(config.device).device);
  const device::Precision precision = device::resolve_precision(config.training.precision, device);
  device::apply_precision(precision, config.training.execution.deterministic);
  return to_json(plan::measure_machine(device.device, precision.compute_type()));
}

std::string learn_one(const Config& config, const Options& options) {
  return to_json(learn(plan::resolve(config), {.updates = options.updates, .evaluations = options.evaluations}));
}

struct Verb {
  const char *name, *help;
  double minutes;  // how long it takes unless it is told otherwise
  bool is_here;    // measures in this process
  Found (*find)(const Context& context);
  std::string (*run_one)(const Config& config, const Options& options) = nullptr;  // in the place of `find`
};

const Verb kVerbs[] = {
    {"ladder",
     "the optimizations one at a time from plain float32 upwards, then each switched off or on in the full set", 10,
     false, climb_rungs},
    {"combo", "the named optimizations of the ladder together, added in this order whether or not they help", 10, false,
     climb_named_rungs},
    {"modes", "the modes of compile_mode beside LibTorch's operators", 3, false, compare_modes},
    {"architecture", "validation loss with other activations, norms, positions and label smoothing", 10, false,
     compare_variants},
    {"experiments",
     "techniques of training beside the plain run, at equal tokens and equal time, with three seeds each; what was "
     "stopped goes on",
     15, false, compare_techniques},
    {"memory", "what each setting that saves memory saves, and what it costs in time", 5, false, compare_savers},
    {"ops", "each operator of the model beside LibTorch's and beside what the machine can do", 1, true,
     measure_operators_of},
    {"profile", "where the time of a step goes, and which settings to change", 0.25, true, profile_run},
    {"scaling",
     "how fast the run would be on many devices, of which one is measured here, or is a card that is not here", 0, true,
     simulate_devices},
    // One process of the above.
    {"measure", "one configuration: time of a step, tokens/s, memory and loss, as JSON", 0, true, nullptr, measure_one},
    {"machine", nullptr, 0, true, nullptr, measure_machine_of},
    {"learn", nullptr, 0, true, nullptr, learn_one},
};

// Runs the verb and leaves its results behind.
int run_verb(const Verb& verb, const Wanted& wanted, const Options& options) {
  const Config& config = wanted.config;
  if (verb.run_one) return put_result(verb.run_one(config, options), options);
  BenchResults results = results_for(wanted, verb.name, options);
  if (const std::string& card = options.scaling.gpu; !card.empty())
    results.device = device::require_card("--gpu", card).describe();
  const Found found = verb.find({wanted, results.device, options, 60 * options.minutes});
  if (!found) return static_cast<int>(process::stop_code());
  results.findings = *found;
  return show(results, options);
}

constexpr const char* kExamples = R"(  gpt-bench ladder
  gpt-bench memory --config configs/tier_24gb.yaml --minutes 20
  gpt-bench combo bfloat16+adamw+compile --data my_text.txt
)";
constexpr const char* kExitStatus = R"(Exit status
  0 done, 1 an unexpected error, 2 wrong usage, 3 data, 7 memory, 8 disk; 129, 130 and 143 after SIGHUP, Ctrl-C and SIGTERM.
)";
constexpr const char* kWithoutConfig =
    "Without --config it measures the run that gpt-train would choose for this machine, with AdamW and a cosine.";

std::string list_of_verbs(int columns = 0) {
  TextTable list{.columns = {{TextColumn::left, 12}, {}}, .before = "  "};
  for (const Verb& verb : kVerbs) {
    if (verb.help) list.rows.push_back({verb.name, verb.help});
  }
  return list.text(columns);
}

std::string usage(int columns) {
  std::string usages, minutes;
  for (const Verb& verb : kVerbs) {
    if (!verb.help) continue;
    usages += fmt::format("{} gpt-bench {}{} [--config FILE] [--KEY VALUE ...]\n", usages.empty() ? "Usage:" : "      ",
                          verb.name, verb.find == climb_named_rungs ? " NAME+NAME..." : "");
    if (verb.minutes > 0) minutes += fmt::format("{}{} {}", minutes.empty() ? "" : ", ", verb.name, verb.minutes);
  }
  return fmt::format(
      "{}\nMeasures what each optimization is worth on this machine: whole steps on real data, with a check that the losses "
      "agree, or operators one by one. {}\n\n{}\n"
      "Examples\n{}\n"
      "--minutes N says about how long a command may take. The defaults are {}. It shows a table, and leaves it in "
      "benchmark_results (--results) as Markdown, with JSON and a chart; measure prints JSON alone. Ctrl-C ends it early and "
      "keeps what has been measured so far.\n\n"
      "gpt-bench COMMAND --help lists all options of a command.\n\n{}",
      usages, kWithoutConfig, list_of_verbs(columns), kExamples, minutes, kExitStatus);
}

// What `gpt-bench VERB --help` begins with.
std::string description_of(const Verb& verb) {
  std::string text = fmt::format("{} {}.\n{}", verb.find == simulate_devices ? "Simulates" : "Measures",
                                 verb.help ? verb.help : verb.name, kWithoutConfig);
  if (verb.find != climb_named_rungs) return text;
  text += "\n\nTheir names come first, joined by +, as in gpt-bench combo bfloat16+adamw+compile:\n\n";
  TextTable list{.columns = {{TextColumn::left, 10}, {}}, .before = "  "};
  for (const Rung& rung : all_rungs(Config(), device::DeviceInfo())) list.rows.push_back({rung.name, rung.settings});
  text += list.text();
  return text.substr(0, text.size() - 1);
}

config::Guide guide_of(const Verb& verb) {
  const std::string command =
      fmt::format("  gpt-bench {}{}", verb.name, verb.find == climb_named_rungs ? " compile+adamw" : "");
  return {.examples = fmt::format("{}\n{} --config configs/shakespeare_bpe.yaml\n", command, command),
          .ending = kExitStatus};
}

const Verb& verb_named(const std::string& name) {
  std::vector<std::string> known;
  for (const Verb& verb : kVerbs) {
    if (verb.name == name) return verb;
    if (verb.help) known.emplace_back(verb.name);
  }
  const auto near = config::did_you_mean(name, known);
  throw Error(ExitCode::config,
              fmt::format("gpt-bench: unknown command {}; {}use one of {}", config::in_quotes(name),
                          near ? fmt::format("did you mean {}? Otherwise ", *near) : "", fmt::join(known, ", ")));
}

std::vector<config::Option> options_of(const std::string& verb, Options& options) {
  std::vector<config::Option> list;
  if (verb == "measure" || verb == "machine" || verb == "learn") {
    list = {{.name = "result",
             .target = &options.result,
             .help = "file for the result; empty = standard output",
             .is_path = true}};
    if (verb == "machine") return list;
    list.push_back({.name = "warm-up",
                    .target = &options.warm_up,
                    .help = "updates before the clock starts",
                    .min = 0,
                    .max = 1e6});
    list.push_back(
        {.name = "updates", .target = &options.updates, .help = "updates that are timed", .min = 1, .max = 1e6});
    if (verb == "learn") {
      list.push_back({.name = "evaluations",
                      .target = &options.evaluations,
                      .help = "validations on the way",
                      .min = 1,
                      .max = 1e6});
    }
    return list;
  }
  if (verb == "scaling") {
    list = bench::options(options.scaling);
    list.push_back({.name = "results",
                    .target = &options.results,
                    .help = "the folder for table, JSON and chart",
                    .is_path = true});
    return list;
  }
  const char* const minutes_help =
      verb == "modes" ? "about how long it may take, unless --iterations says it" : "about how long it may take";
  list = {
      {.name = "minutes", .target = &options.minutes, .help = minutes_help, .min = 0.1, .max = 10000},
      {.name = "results", .target = &options.results, .help = "the folder for table, JSON and chart", .is_path = true}};
  if (verb == "modes") {
    list.push_back({.name = "epochs",
                    .target = &options.epochs,
                    .help = "times that each mode is measured, in turn",
                    .min = 1,
                    .max = 1000});
    list.push_back({.name = "iterations",
                    .target = &options.iterations,
                    .help = "updates that are timed in each; 0 = as many as fit into --minutes",
                    .min = 0,
                    .max = 1e6});
  }
  return list;
}

// batch_size: auto becomes the number that gpt-train would plan. What is measured with other micro-batches is no contradiction
// of the total.
Config with_batch_size(Config config) {
  if (config.training.batch_size == 0) {
    const run::Setup resolved = plan::resolve(config);
    log::info(resolved.batch_reason);
    config.model.vocab_size = resolved.config.model.vocab_size;
    config::set_batch_size(config.training, resolved.config.training.batch_size);
  }
  config.training.total_batch_size.reset();
  return config;
}

// The scripts of all commands, and then that of the program, which calls them.
void print_completions(const std::vector<const char*>& arguments) {
  const int count = static_cast<int>(arguments.size());
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) {
    if (!verb.help) continue;
    names.emplace_back(verb.name);
    Options options;
    config::parse_command_line(count, arguments.data(), fmt::format("gpt-bench {}", verb.name), "",
                               options_of(verb.name, options));
  }
  config::parse_arguments({.name = "gpt-bench", .description = {}, .usage = {}, .sections = {}, .commands = names},
                          count, arguments.data());
}

// The flags of every program that is given no command: --manual, --print-man-page.
void answer_without_command(int argc, char** argv) {
  config::parse_arguments(
      {.name = "gpt-bench",
       .description = fmt::format("Measures what each optimization is worth on this machine. {}", kWithoutConfig),
       .usage = "COMMAND [--config FILE] [--KEY VALUE ...]",
       .sections = {},
       .guide = {.examples = kExamples,
                 .ending = fmt::format("gpt-bench COMMAND --help lists all options of a command.\n\nCommands\n{}\n{}",
                                       list_of_verbs(), kExitStatus)}},
      argc, argv);
}

}  // namespace

int run_command(int argc, char** argv) {
  const char* const* const asked = std::find_if(argv + 1, argv + argc, [](const char* word) {
    return std::string_view(word).starts_with("--print-completions");
  });
  if (asked < argv + argc) {
    std::vector<const char*> arguments(asked, static_cast<const char* const*>(argv + argc));
    arguments.insert(arguments.begin(), argv[0]);
    print_completions(arguments);
    return 0;
  }
  if (argc < 2) throw Error(ExitCode::config, "gpt-bench needs a command, such as ladder; gpt-bench --help lists them");
  const std::string name = argv[1];
  if (name.starts_with("--manual") || name == "--print-man-page") {
    answer_without_command(argc, argv);
    return 0;
  }
  if (name == "--help" || name == "-h" || name == "--version") {
    const int columns = reading_columns(STDOUT_FILENO);
    print(name == "--version" ? version_text("gpt-bench") + "\n" : wrap_text(usage(columns), columns, 4));
    return 0;
  }
  const Verb& verb = verb_named(name);
  const bool is_combo = verb.find == climb_named_rungs;
  Options options;
  if (is_combo && argc > 2 && argv[2][0] != '-') options.names = argv[2];
  options.minutes = verb.minutes;
  options.command = "gpt-bench";
  for (int i = 1; i < argc; ++i) options.command += fmt::format(" {}", argv[i]);
  std::string program = "gpt-bench " + name;
  if (is_combo) program += " " + (options.names.empty() ? "NAME+NAME..." : options.names);
  const int used = options.names.empty() ? 1 : 2;
  const auto command = config::parse_command_line(argc - used, argv + used, program, description_of(verb),
                                                  options_of(name, options), complete, guide_of(verb));
  if (command.handled) return 0;
  for (const std::string& note : command.notes) log::info("Note: " + note);
  if (is_combo && options.names.empty())
    throw Error(ExitCode::config, "gpt-bench combo: name the optimizations, such as compile+adamw");
  const bool simulates = verb.find == simulate_devices;
  if (simulates) complete_scaling(options.scaling, command);
  process::watch_signals();
  if (verb.is_here) {
    device::use_cpu_threads(command.config.threads);
    device::use_cpu_allocator();
  }
  // The batch of many devices follows from their memory.
  return run_verb(verb, {simulates ? command.config : with_batch_size(command.config), command.origins}, options);
}

}  // namespace gpt::bench
