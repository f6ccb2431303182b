#include "gpt/bench/step_profile.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/bench/measurement.h"
#include "gpt/bench/rung.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/processors.h"
#include "gpt/core/running_clock.h"
#include "gpt/model/compile.h"
#include "gpt/ops/part.h"
#include "gpt/plan/resolve.h"
#include "measured_run.h"
#include "part_clock.h"

namespace gpt::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kNameOfBetween = "between the operators";
// So many times their median the mean of the steps is where something else takes turns with them.
constexpr double kDisturbed = 1.15;

// The times of many steps, part by part.
class Samples {
 public:
  void add(const PartClock::Times& times, const MeasuredRun::Updates& update) {
    for (size_t i = 0; i < times.parts.size(); ++i) {
      forward_[i].push_back(times.parts[i].forward_ms);
      backward_[i].push_back(times.parts[i].backward_ms);
    }
    launched_.push_back(times.launched_ms);
    step_.push_back(1000 * update.seconds);
    tokens_.push_back(static_cast<double>(update.tokens));
  }

  void summarize(StepProfile& profile, const device::Precision& precision) const {
    const auto work =
        plan::work_of_step(profile.config.model, profile.config.training, precision, /*tokens=*/median(tokens_));
    for (size_t i = 0; i < forward_.size(); ++i) {
      const double backward = median(backward_[i]), ms = median(forward_[i]) + backward;
      profile.parts.push_back(i < work.size() ? PartTime{work[i].name, ms, backward, work[i].work}
                                              : PartTime{kNameOfBetween, ms, backward});
    }
    profile.launched_ms = median(launched_);
    profile.step_ms = median(step_);
    profile.updates = std::ssize(step_);
  }

 private:
  std::array<std::vector<double>, PartClock::kBetween + 1> forward_, backward_;
  std::vector<double> launched_, step_, tokens_;
};

double share_of(const StepProfile& profile, std::string_view name) {
  const auto found =
      std::find_if(profile.parts.begin(), profile.parts.end(), [&](const PartTime& part) { return part.name == name; });
  return found->ms / profile.step_ms;
}

double least_ms(const PartTime& part, const StepProfile& profile) {
  return 1000 * profile.speed.least_seconds(part.work);
}

double least_ms(const StepProfile& profile) {
  double sum = 0;
  for (const PartTime& part : profile.parts) sum += least_ms(part, profile);
  return sum;
}

Cells cells_of(const std::string& name, double ms, double backward_ms, double least_ms, double step_ms) {
  const auto as_ms = [](double value) { return fmt::format("{:.2f}", value); };
  const bool is_limited = least_ms > 0 && ms > 0;
  return {name,
          as_ms(ms),
          as_ms(backward_ms),
          as_share(ms / step_ms),
          is_limited ? as_ms(least_ms) : "-",
          is_limited ? as_share(least_ms / ms) : "-"};
}

Table table_of(const StepProfile& profile) {
  Table table{{{"part", "ms", "of it backward", "share", "least ms", "of the limit"}}};
  double backward = 0;
  for (const PartTime& part : profile.parts) {
    table.rows.push_back(cells_of(part.name, part.ms, part.backward_ms, least_ms(part, profile), profile.step_ms));
    backward += part.backward_ms;
  }
  table.rows.push_back(cells_of("step", profile.step_ms, backward, least_ms(profile), profile.step_ms));
  return table;
}

// Whether a run records its steps as graphs, as the profile never does.
bool records(const StepProfile& profile) {
  return model::effective_mode(profile.config.training, profile.config.model, profile.device.device).records;
}

Document text_of(const StepProfile& profile) {
  Document text{
      fmt::format(
          "Medians of {} in {}, {:.2f} ms each. {} Between the operators there are autograd, allocations and launches.",
          plural(profile.updates, "step"), device::name_of(profile.type), profile.step_ms,
          plan::explain_limit(profile.speed)),
      table_of(profile)};
  if (profile.device.device.is_cpu()) {
    text.push_back(fmt::format("{:.2f} of {} were busy on average.", profile.cpu_ms / profile.mean_ms,
                               plural(profile.threads, "thread")));
  } else {
    text.push_back(fmt::format(
        "The host had launched a step after {:.2f} of its {:.2f} ms.{}", profile.launched_ms, profile.step_ms,
        records(profile)
            ? " Kernels are launched one by one only until they are recorded, once in a run of this configuration."
            : ""));
  }
  if (profile.mean_ms > kDisturbed * profile.step_ms) {
    text.push_back(fmt::format(
        "The mean of the steps is {:.2f} ms, {} more than their median: another program probably used this machine "
        "meanwhile. Measure again when it is idle.",
        profile.mean_ms, as_share(profile.mean_ms / profile.step_ms - 1)));
  }
  if (profile.config.training.quantized.is_on()) {
    text.push_back(fmt::format(
        "Products in 8 bits are compared with the speed of one in {}, so that they can come to more than the limit.",
        device::name_of(profile.type)));
  }
  if (profile.memory)
    text.push_back(fmt::format("Memory of the tensors at their peak: {}.", report::to_text(*profile.memory)));
  text.push_back("What to change:");
  text.push_back(List{advice(profile)});
  return text;
}

// Collects advice with the share of a step that it is about.
class Advice {
 public:
  void add(bool applies, double share, std::string sentence) {
    if (applies) sentences_.emplace_back(share, std::move(sentence));
  }
  std::vector<std::string> by_share() {
    std::stable_sort(sentences_.begin(), sentences_.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::string> result;
    for (auto& [share, sentence] : sentences_) result.push_back(std::move(sentence));
    return result;
  }

 private:
  std::vector<std::pair<double, std::string>> sentences_;
};

// Nothing where a signal stopped it, which is an error only while there is too little to report.
std::optional<MeasuredRun::Updates> next_update(MeasuredRun& run, bool has_enough) {
  try {
    return run.update();
  } catch (const Error& error) {
    if (!has_enough || error.code() != ExitCode::interrupted) throw;
    return std::nullopt;
  }
}

}  // namespace

StepProfile profile_steps(const Wanted& wanted, double seconds, const Progress& progress) {
  constexpr int kWarmUp = 3, kLeast = 5;
  Config config = measurable(wanted.config);
  const CompileMode asked = std::exchange(config.training.execution.compile_mode, CompileMode::standard);
  progress(0, "the machine");
  MeasuredRun run(plan::resolve(config));
  StepProfile profile{.config = run.setup().config,
                      .device = run.device(),
                      .type = run.precision().compute_type(),
                      .parts = {}};
  profile.config.training.execution.compile_mode = asked;
  profile.threads = at::get_num_threads();
  profile.speed = plan::measure_machine(run.device().device, profile.type);
  device::reset_memory_peak(run.device().device);
  profile.is_resident = run.is_resident();
  for (int i = 0; i < kWarmUp; ++i) run.update();
  PartClock clock(run.device().device);
  Samples samples;
  const double cpu_before = processor_seconds();
  const auto begin = Clock::now();
  double passed = 0;
  for (int i = 0; i < kLeast || passed < seconds; ++i) {
    progress(std::min(1.0, passed / seconds), "steps");
    clock.begin();
    const auto update = next_update(run, /*has_enough=*/i >= kLeast);
    profile.complete = update.has_value();
    if (!update) break;
    samples.add(clock.end(), *update);
    passed = seconds_since(begin);
  }
  samples.summarize(profile, run.precision());
  profile.memory = run.memory();
  const auto updates = static_cast<double>(profile.updates);
  profile.mean_ms = 1000 * passed / updates, profile.cpu_ms = 1000 * (processor_seconds() - cpu_before) / updates;
  // Again, so that another program's moment does not pass for the machine.
  if (profile.complete) plan::measure_again(profile.speed, run.device().device, profile.type);
  return profile;
}

std::vector<std::string> advice(const StepProfile& profile) {
  constexpr double kMuch = 0.15, kFew = 0.05;
  const TrainingConfig& training = profile.config.training;
  const ExecutionConfig& execution = training.execution;
  const bool cuda = profile.device.device.is_cuda();
  const auto share = [&](const char* name) { return share_of(profile, name); };
  const double attention = share(ops::part::kAttention), products = share(ops::part::kProducts),
               data = share(ops::part::kData), update = share(ops::part::kOptimizer), head = share(ops::part::kHead),
               between = share(kNameOfBetween);
  const bool is_math = execution.attention == AttentionKernel::math;
  const double busy = profile.cpu_ms / profile.mean_ms / static_cast<double>(profile.threads),
               launching = profile.launched_ms / profile.step_ms;
  const bool has_graphs = model::recording_obstacle(training, profile.config.model, profile.device.device).empty();

  Advice result;
  result.add(!execution.use_compile, 1, "`training.use_compile: true` computes with this program's own operators.");
  result.add(profile.type == at::kFloat && profile.device.bfloat16, products,
             "`training.use_amp: true` computes in bfloat16, for which this device has instructions.");
  result.add(cuda && training.precision.dtype == Dtype::float32 && profile.device.tf32, products,
             "`training.dtype: tf32` uses tensor cores for float32 products.");
  result.add(is_math && attention > kFew, attention,
             "`training.attention: auto` uses a fused kernel instead of whole matrices of scores.");
  result.add(
      data > kFew, data,
      fmt::format("{} of a step waits for data: {}.", as_share(data),
                  cuda && !profile.is_resident
                      ? "`data.resident: on` keeps the tokens on the device; otherwise use more `data.num_workers`"
                      : "is another program using this disk or processor?"));
  result.add(update > kMuch && !training.optimizer.fused_adamw, update,
             "`training.fused_adamw: true` updates all parameters in one pass.");
  result.add(update > kMuch && training.optimizer.fused_adamw, update,
             fmt::format(
                 "The update takes {} of a step, whatever the number of tokens: a larger `training.batch_size` or more "
                 "`training.gradient_accumulation_steps` share it among more of them.",
                 as_share(update)));
  result.add(
      head > 2 * kMuch, head,
      fmt::format("The head takes {} of a step, in proportion to the vocabulary: a tokenizer with fewer tokens, or a "
                  "deeper model, would change that.",
                  as_share(head)));
  result.add(execution.use_compile && execution.gradient_checkpointing >= GradientCheckpointing::selective, kMuch,
             "`training.gradient_checkpointing: norm` computes no products twice, if there is memory for it.");
  result.add(cuda && launching > 1 - kMuch && has_graphs && !records(profile), launching,
             "The device waits for the host, which launches kernels one by one: `training.compile_mode: auto` "
             "records the step; a larger `training.batch_size` helps too.");
  result.add(!cuda && between > kMuch, between,
             fmt::format(
                 "{} of a step is spent between operators: a larger `training.batch_size` shares it among more tokens.",
                 as_share(between)));
  result.add(
      !cuda && profile.threads > 1 && busy < 0.75, 1 - busy,
      fmt::format("Threads were busy for only {} of the time: another program takes the processor, or the operators "
                  "are too small for {} threads; compare with `--threads {}`.",
                  as_share(busy), profile.threads, std::max<int64_t>(1, profile.threads / 2)));
  std::vector<std::string> sentences = result.by_share();
  if (sentences.empty()) {
    sentences.push_back(fmt::format("Nothing stands out: products, attention and head take {} of a step.",
                                    as_share(products + attention + head)));
  }
  return sentences;
}

Findings findings(const StepProfile& profile) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  Findings result{.text = text_of(profile),
                  .json = "",
                  .chart_title = "Milliseconds of a step",
                  .legend = {"products and attention", "no operations to speak of"},
                  .threads = profile.threads,
                  .complete = profile.complete};
  for (const PartTime& part : profile.parts) {
    parts.push_back({{"name", part.name},
                     {"ms", part.ms},
                     {"backward_ms", part.backward_ms},
                     {"flops", part.work.flops},
                     {"bytes", part.work.bytes},
                     {"least_ms", least_ms(part, profile)}});
    result.bars.push_back({part.name, fmt::format("{:.2f} ms, {}", part.ms, as_share(part.ms / profile.step_ms)),
                           part.ms, part.work.flops > 0});
  }
  nlohmann::ordered_json memory = nlohmann::ordered_json::object();
  if (profile.memory) {
    for (const auto& [name, bytes] : profile.memory->parts()) memory[name] = bytes;
  }
  result.json = nlohmann::ordered_json{{"dtype", device::name_of(profile.type)},
                                       {"updates", profile.updates},
                                       {"step_ms", profile.step_ms},
                                       {"least_ms", least_ms(profile)},
                                       {"mean_ms", profile.mean_ms},
                                       {"cpu_ms", profile.cpu_ms},
                                       {"launched_ms", profile.launched_ms},
                                       {"peak_flops", profile.speed.flops},
                                       {"copy_bytes_per_second", profile.speed.bytes_per_second},
                                       {"parts", parts},
                                       {"memory_bytes", memory},
                                       {"advice", advice(profile)}}
                    .dump();
  return result;
}

}  // namespace gpt::bench
