#include "gpt/bench/rung.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "gpt/config/load.h"
#include "gpt/config/rules.h"
#include "gpt/config/suggest.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/device/precision.h"
#include "gpt/model/compile.h"
#include "gpt/plan/savers.h"

namespace gpt::bench {
namespace {

// Why the device does not compute in `dtype`; empty where it does.
std::string obstacle_of(Dtype dtype, const device::DeviceInfo& device) {
  const bool amp = dtype == Dtype::bfloat16 || dtype == Dtype::float16;
  if (device.device.is_cpu() && dtype != Dtype::bfloat16) return "needs a GPU";
  try {
    (void)device::resolve_precision({.use_amp = amp, .dtype = dtype}, device);
  } catch (const Error& error) { return error.what(); }
  return "";
}

// Why steps with every optimization cannot be recorded.
std::string obstacle_of_graphs(const Config& wanted, const device::DeviceInfo& device) {
  if (device.device.is_cpu()) return "needs a GPU";
  TrainingConfig training = wanted.training;
  training.execution.use_compile = training.optimizer.fused_adamw = true;
  const std::string obstacle = model::recording_obstacle(training, wanted.model, device.device);
  return obstacle.empty() ? "" : "impossible " + obstacle;
}

// Why products cannot be tuned.
std::string obstacle_of_tuning(const Config& wanted, const device::DeviceInfo& device) {
  if (device.device.is_cpu()) return "needs a GPU";
  TrainingConfig training = wanted.training;
  training.execution.use_compile = true;
  const std::string obstacle = model::tuning_obstacle(training, device.device);
  return obstacle.empty() ? "" : "impossible " + obstacle;
}

Rung amp(const char* name, const char* settings, Dtype dtype, const device::DeviceInfo& device) {
  return {.name = name,
          .settings = settings,
          .apply =
              [dtype](Config& config) {
                config.training.precision = {.use_amp = true, .dtype = dtype, .amp_mode = AmpMode::autocast};
              },
          .obstacle = obstacle_of(dtype, device),
          .group = "amp",
          .rival = dtype == Dtype::float16 ? "bfloat16" : ""};
}

Rung workers(const char* name, int64_t count) {
  return {.name = name,
          .settings = fmt::format("num_workers: {}", count),
          .apply = [count](Config& config) { config.data.num_workers = count; },
          .group = "workers"};
}

const Rung& rung_named(const std::string& name, const std::vector<Rung>& all) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Rung& rung) { return rung.name == name; });
  if (found == all.end()) {
    std::vector<std::string> known;
    for (const Rung& rung : all) known.push_back(rung.name);
    const auto near = config::did_you_mean(name, known);
    throw Error(ExitCode::config,
                fmt::format("gpt-bench combo: there is no optimization {}; {} {}", config::in_quotes(name),
                            near ? fmt::format("did you mean {}? There are", *near) : "there are",
                            fmt::join(known, ", ")));
  }
  if (!found->obstacle.empty())
    throw Error(ExitCode::config, fmt::format("gpt-bench combo: {} cannot be measured: {}", name, found->obstacle));
  return *found;
}

Rung rung_of(const plan::MemorySetting& setting) {
  Rung rung{.name = setting.name,
            .settings = fmt::format("{}", fmt::join(setting.settings, ", ")),
            .apply = [apply = setting.apply](Config& config) { apply(config.training); },
            .obstacle = setting.obstacle};
  if (setting.settings.front().starts_with("gradient_checkpointing")) rung.group = "checkpointing";
  Config config;
  if (!plan::goes_with(setting, config, {.is_end_to_end = false})) rung.needs.emplace_back("end_to_end");
  config.training.execution.use_compile = false;
  if (!plan::goes_with(setting, config, {})) rung.needs.insert(rung.needs.begin(), "compile");
  config.training.execution.use_compile = true, config.training.optimizer.fused_adamw = false;
  if (!plan::goes_with(setting, config, {})) {
    rung.settings += ", fused_adamw: true";
    rung.apply = [apply = rung.apply](Config& config) {
      apply(config);
      config.training.optimizer.fused_adamw = true;
    };
  }
  if (!rung.needs.empty()) rung.settings += fmt::format(" (with {})", fmt::join(rung.needs, ", "));
  return rung;
}

// What saves memory, and not time.
std::vector<Rung> memory_rungs(const Config& wanted, const device::DeviceInfo& device) {
  std::vector<Rung> all;
  for (const plan::MemorySetting& setting : plan::memory_settings(device)) all.push_back(rung_of(setting));
  if (wanted.training.batch_size % 2 == 0) {
    all.push_back(rung_of(plan::smaller_batch(wanted.training)));
  } else {
    all.push_back({.name = "accumulation",
                   .settings = "half the batch_size",
                   .apply = [](Config&) {},
                   .obstacle = "the micro-batch has an odd number of sequences"});
  }
  return all;
}

// Switches off, or on, what contradicts the keys that were changed.
void adapt(Adapted& adapted, const Config& before, const config::Origins& written) {
  std::vector<std::string> changed;
  for (const config::Change& change : config::difference(before, adapted.config)) changed.push_back(change.key);
  if (auto changes = config::cure_unwritten(adapted.config, written, changed)) adapted.also = std::move(*changes);
}

std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> result;
  for (size_t at = 0; at <= names.size();) {
    const size_t end = std::min(names.find('+', at), names.size());
    result.push_back(names.substr(at, end - at));
    at = end + 1;
  }
  return result;
}

}  // namespace

std::vector<Rung> all_rungs(const Config& wanted, const device::DeviceInfo& device) {
  std::vector<Rung> all = rungs(wanted, device);
  for (Rung& rung : memory_rungs(wanted, device)) all.push_back(std::move(rung));
  return all;
}

Rung combined(const std::string& names, const std::vector<Rung>& all) {
  Rung result{.name = names, .settings = "", .apply = [](Config&) {}};
  for (const std::string& name : split(names)) {
    const Rung& rung = *std::find_if(all.begin(), all.end(), [&](const Rung& one) { return one.name == name; });
    result.settings += (result.settings.empty() ? "" : "; ") + rung.settings;
    result.apply = [before = result.apply, next = rung.apply](Config& config) { before(config), next(config); };
    if (result.obstacle.empty()) result.obstacle = rung.obstacle;
  }
  return result;
}

std::vector<Rung> rungs(const Config& wanted, const device::DeviceInfo& device) {
  const bool cuda = device.device.is_cuda();
  const int64_t multiple = wanted.model.vocab_multiple;
  return {
      {"tf32", "dtype: tf32", [](Config& config) { config.training.precision.dtype = Dtype::tf32; },
       obstacle_of(Dtype::tf32, device)},
      amp("bfloat16", "use_amp: true, dtype: bfloat16", Dtype::bfloat16, device),
      amp("float16", "use_amp: true, dtype: float16 (with GradScaler)", Dtype::float16, device),
      {"flash", "attention: auto",
       [](Config& config) { config.training.execution.attention = AttentionKernel::automatic; }},
      {"padding", fmt::format("vocab_multiple: {}", multiple),
       [multiple](Config& config) { config.model.vocab_multiple = multiple; },
       multiple == 1 ? "the configuration has vocab_multiple 1" : ""},
      {"adamw", "fused_adamw: true", [](Config& config) { config.training.optimizer.fused_adamw = true; }},
      // Where LibTorch's attention was left out because it is slower, ours is part of the set nevertheless.
      {"compile", "use_compile: true, attention: auto",
       [](Config& config) {
         config.training.execution.use_compile = true;
         config.training.execution.attention = AttentionKernel::automatic;
       }},
      {"end_to_end", "amp_mode: end_to_end, dtype: bfloat16",
       [](Config& config) {
         config.training.precision = {.use_amp = true, .dtype = Dtype::bfloat16, .amp_mode = AmpMode::end_to_end};
       },
       device::bfloat16_emulation(device), "amp"},
      {"graph",
       "compile_mode: reduce-overhead (with compile and adamw)",
       [](Config& config) { config.training.execution.compile_mode = CompileMode::reduce_overhead; },
       obstacle_of_graphs(wanted, device),
       "",
       {"adamw", "compile"}},
      {"autotune",
       "compile_mode: max-autotune (with graph)",
       [](Config& config) { config.training.execution.compile_mode = CompileMode::max_autotune; },
       obstacle_of_tuning(wanted, device),
       "",
       {"adamw", "compile", "graph"}},
      workers("workers_2", 2),
      workers("workers", 4),
      {"pinned",
       "pin_memory: true (with workers)",
       [](Config& config) { config.data.pin_memory = true; },
       cuda ? "" : "needs a GPU",
       "",
       {"workers"}},
      {"resident", "resident: on", [](Config& config) { config.data.resident = Resident::on; }},
  };
}

bool contains(const std::vector<const Rung*>& set, const std::string& name) {
  const auto is_it = [&name](const Rung* rung) { return rung->name == name || rung->group == name; };
  return !name.empty() && std::any_of(set.begin(), set.end(), is_it);
}

std::vector<std::string> missing_needs(const Rung& rung, const std::vector<const Rung*>& set) {
  std::vector<std::string> missing;
  for (const std::string& need : rung.needs) {
    if (!contains(set, need)) missing.push_back(need);
  }
  return missing;
}

std::string in_words(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_last = i + 1 == names.size();
    text += (i == 0 ? "" : is_last ? " and " : ", ") + names[i];
  }
  return text;
}

std::vector<Rung> named_rungs(const std::string& names, const std::vector<Rung>& all) {
  std::vector<Rung> result;
  std::vector<const Rung*> before;
  for (const std::string& name : split(names)) {
    const Rung& rung = rung_named(name, all);
    if (std::find(before.begin(), before.end(), &rung) != before.end())
      throw Error(ExitCode::config, fmt::format("gpt-bench combo: {} is named twice", rung.name));
    if (const auto missing = missing_needs(rung, before); !missing.empty()) {
      throw Error(ExitCode::config, fmt::format("gpt-bench combo: {} does nothing without {} before it: name {}+{}",
                                                rung.name, in_words(missing), fmt::join(rung.needs, "+"), rung.name));
    }
    result.push_back(rung), before.push_back(&rung);
  }
  return result;
}

std::vector<Rung> variants(const device::DeviceInfo& device) {
  std::vector<Rung> result;
  for (const int64_t size : {32, 64, 96, 128, 160, 192, 256}) {
    result.push_back({fmt::format("{}", size), fmt::format("batch_size: {}", size),
                      [size](Config& config) { config.training.batch_size = size; }});
  }
  result.push_back({"cpu", "device: cpu, batch_size: 1",
                    [](Config& config) {
                      config.device = "cpu";
                      config.training.batch_size = config.training.gradient_accumulation_steps = 1;
                      config.training.precision = {};
                      config.training.execution.compile_mode = CompileMode::standard;
                      config.training.execution.attention = AttentionKernel::automatic;
                    },
                    device.device.is_cuda() ? "" : "all of this was measured on the CPU"});
  return result;
}

Config measurable(const Config& wanted) {
  Config config = wanted;
  config.data.stages.clear();
  config.distributed = DistributedConfig();
  config.distributed.processes = 1;
  config.training.resume_from = "none";
  config.training.cadence = {};
  // The first updates of a long warm-up learn nothing by which losses could be told apart.
  config.training.schedule.warmup_steps = 10;
  config.training.schedule.lr_schedule = LrSchedule::constant;
  return config;
}

std::string with_changes(const std::string& settings, const std::vector<std::string>& also) {
  return also.empty() ? settings : fmt::format("{}; and therefore {}", settings, fmt::join(also, ", "));
}

Adapted applied(const std::function<void(Config& config)>& change, const Config& config,
                const config::Origins& written) {
  Adapted result{config, {}};
  change(result.config);
  adapt(result, config, written);
  return result;
}

Adapted with_libtorchs_operators(const Config& config, const config::Origins& written) {
  Adapted result{config, {}};
  result.config.training.execution.use_compile = false;
  adapt(result, config, written);
  return result;
}

Adapted without_rungs(const Wanted& wanted) {
  const Config before = measurable(wanted.config);
  Adapted result{before, {}};
  Config& config = result.config;
  config.training.execution.use_compile = false;
  config.data.num_workers = 0;
  config.data.pin_memory = false;
  config.data.resident = Resident::off;
  config.model.vocab_multiple = 1;
  config.training.precision = {.use_amp = false, .dtype = Dtype::float32, .amp_mode = AmpMode::autocast};
  config.training.optimizer.fused_adamw = false;
  config.training.execution.compile_mode = CompileMode::standard;
  config.training.execution.attention = AttentionKernel::math;
  adapt(result, before, wanted.written);
  return result;
}

}  // namespace gpt::bench
