#include "gpt/plan/savers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "gpt/config/batch.h"
#include "gpt/config/load.h"
#include "gpt/config/rules.h"
#include "gpt/device/precision.h"
#include "gpt/model/compile.h"
#include "gpt/ops/classifier.h"
#include "gpt/plan/estimates.h"

namespace gpt::plan {
namespace {

constexpr const char* kDataSaver = "data.resident: off";

struct Candidate {
  std::string setting, price;
  std::function<void(TrainingConfig&)> apply;
  bool is_batch = false, is_proven = true;
};

Candidate candidate(const MemorySetting& setting) {
  return {.setting = fmt::format("training.{}", fmt::join(setting.settings, " and training.")),
          .price = setting.price,
          .apply = setting.apply,
          .is_proven = setting.is_proven};
}

// Those that are in use already, or save less than what is, gain nothing.
std::vector<Candidate> candidates(const PlacedRun& run) {
  const auto& [config, device, attention] = run;
  const ModelConfig& model = config.model;
  const TrainingConfig& training = config.training;
  const ExecutionConfig& execution = training.execution;
  const bool cuda = device.device.is_cuda();
  const device::Precision precision = device::resolve_precision(training.precision, device);
  std::vector<Candidate> all;
  for (const MemorySetting& setting : memory_settings(device))
    if (setting.obstacle.empty() && goes_with(setting, config, device::facts_of(device, precision)))
      all.push_back(candidate(setting));
  if (training.batch_size > 1) {
    all.push_back(candidate(smaller_batch(training)));
    all.back().is_batch = true;
  }
  if (device.bfloat16 || (cuda && device.float16)) {
    all.push_back({"training.use_amp: true and training.dtype: auto",
                   fmt::format("less time too; activations of 16 bits ({})", device.bfloat16 ? "bfloat16" : "float16"),
                   [](TrainingConfig& t) { t.precision.use_amp = true, t.precision.dtype = Dtype::automatic; }});
  }
  if (device.bfloat16) {
    all.push_back({"training.amp_mode: end_to_end", "less time too; the residual stream has 16 bits",
                   [](TrainingConfig& t) { t.precision.amp_mode = AmpMode::end_to_end; }});
  }
  if (!execution.use_compile) {
    all.push_back(
        {"training.use_compile: true", "less time too", [](TrainingConfig& t) { t.execution.use_compile = true; }});
  } else {
    const int64_t tokens = training.batch_size * training.sequence_length_for(model), kLeast = 256,
                  rows =
                      ops::classifier_chunk_rows(tokens, {model.padded_vocab(), model.n_embd}, precision.compute_type(),
                                                 execution.loss_chunk_rows, device.multiprocessors),
                  fewer = std::max(kLeast, rows / 4);
    all.push_back({fmt::format("training.loss_chunk_rows: {}", fewer), "the head's products are smaller",
                   [fewer](TrainingConfig& t) { t.execution.loss_chunk_rows = fewer; }});
  }
  if (attention.starts_with("math") && execution.attention == AttentionKernel::math) {
    all.push_back({"training.attention: auto", "less time too",
                   [](TrainingConfig& t) { t.execution.attention = AttentionKernel::automatic; }});
  }
  if (model::effective_mode(training, model, device.device).records) {
    all.push_back({"training.compile_mode: default", "the host launches every kernel of every step",
                   [](TrainingConfig& t) { t.execution.compile_mode = CompileMode::standard; }});
  }
  return all;
}

// A run as it was asked for, and what others like it would need.
struct Run : PlacedRun {
  ActivationForm form(const TrainingConfig& training) const {
    // What asks for unfused attention is the setting itself, or nothing that a setting changes.
    const bool is_unasked = training.execution.attention != config.training.execution.attention;
    return activation_form(config.model, training, config.distributed, device,
                           device::resolve_precision(training.precision, device), is_unasked ? "flash" : attention);
  }
  double needed(const TrainingConfig& training) const {
    return estimate_memory(config.model, training, form(training)).total();
  }
  Config with(const TrainingConfig& training) const {
    Config other = config;
    other.training = training;
    return other;
  }
  bool may_resume(const TrainingConfig& training) const {
    const auto changes = config::difference(config, with(training));
    return std::all_of(changes.begin(), changes.end(), [](const auto& change) { return change.safe_on_resume; });
  }
};

// Settings that change one after the other, until the run fits.
class Shrinking {
 public:
  Shrinking(const Run& run, double data_bytes, double room, bool resumes)
      : run_(run),
        training_(run.config.training),
        effective_batch_(training_.batch_size * training_.gradient_accumulation_steps),
        data_(data_bytes),
        room_(room),
        resumes_(resumes) {}

  // The saver that is just enough, or the greatest ones together; the batch stays.
  std::optional<FittingSettings> with_this_batch() {
    std::vector<Candidate> all = usable();
    std::stable_sort(all.begin(), all.end(), [this](const auto& a, const auto& b) { return after(a) > after(b); });
    for (const Candidate& candidate : all) {
      if (after(candidate) <= room_) return apply(candidate), result();
    }
    while (apply_greatest()) {
      if (bytes() <= room_) return result();
    }
    return std::nullopt;
  }

  // As many sequences at a time as fit, after the greatest savers where not even one does.
  std::optional<FittingSettings> with_a_smaller_batch() {
    training_.gradient_accumulation_steps = std::max<int64_t>(2, training_.gradient_accumulation_steps);
    do {
      const auto largest = largest_batch_size(run_.config.model, training_, run_.form(training_), room_ - data_);
      if (largest) return shrink_batch(*largest), result();
    } while (apply_greatest());
    return std::nullopt;
  }

 private:
  double bytes() const { return run_.needed(training_) + data_; }

  double after(const Candidate& candidate) const {
    TrainingConfig changed = training_;
    if (candidate.apply) candidate.apply(changed);
    return run_.needed(changed) + (candidate.apply ? data_ : 0);
  }

  void apply(const Candidate& candidate) {
    settings_.push_back(candidate.setting);
    if (candidate.apply) {
      candidate.apply(training_);
    } else {
      data_ = 0;
    }
  }

  // All that are proven but smaller batches; the tokens on the device are the one without `apply`.
  std::vector<Candidate> usable() const {
    std::vector<Candidate> all = candidates({run_.with(training_), run_.device, run_.attention});
    if (data_ > 0) all.push_back({kDataSaver, "", {}});
    std::erase_if(all, [this](const Candidate& candidate) {
      TrainingConfig changed = training_;
      if (candidate.apply) candidate.apply(changed);
      return candidate.is_batch || !candidate.is_proven || (resumes_ && !run_.may_resume(changed)) ||
             after(candidate) >= bytes();
    });
    return all;
  }

  bool apply_greatest() {
    const std::vector<Candidate> all = usable();
    if (all.empty()) return false;
    apply(*std::min_element(all.begin(), all.end(),
                            [this](const auto& a, const auto& b) { return after(a) < after(b); }));
    return true;
  }

  void shrink_batch(int64_t largest) {
    const int64_t before = training_.batch_size,
                  part = config::largest_divisor(effective_batch_, std::min(largest, before));
    training_.batch_size = part, training_.gradient_accumulation_steps = effective_batch_ / part;
    if (part == before) return;
    settings_.push_back(
        fmt::format("training.batch_size: {} and training.gradient_accumulation_steps: {}, the same effective batch",
                    part, effective_batch_ / part));
  }

  FittingSettings result() const { return {settings_, bytes(), run_.may_resume(training_)}; }

  const Run& run_;
  TrainingConfig training_;
  int64_t effective_batch_;
  double data_, room_;
  bool resumes_;
  std::vector<std::string> settings_;
};

}  // namespace

bool goes_with(const MemorySetting& setting, Config config, const config::Facts& facts) {
  setting.apply(config.training);
  if (config::find_refusal(config, facts)) return false;
  const auto is_its = [&](const std::string& key) {
    return std::any_of(setting.settings.begin(), setting.settings.end(),
                       [&](const std::string& text) { return "training." + text.substr(0, text.find(':')) == key; });
  };
  for (const config::IdleKeys& idle : config::find_idle(config, facts))
    if (std::any_of(idle.keys.begin(), idle.keys.end(), is_its)) return false;
  return true;
}

std::vector<FittingSettings> find_fitting_settings(const PlacedRun& asked, double data_bytes, double room,
                                                   bool is_saved) {
  const Run run{asked};
  const auto smaller = Shrinking(run, data_bytes, room, /*resumes=*/false).with_a_smaller_batch(),
             same = Shrinking(run, data_bytes, room, /*resumes=*/is_saved).with_this_batch();
  std::vector<FittingSettings> found;
  for (const auto& one : is_saved ? std::array{same, smaller} : std::array{smaller, same}) {
    if (one && !one->settings.empty() && (found.empty() || found[0].settings != one->settings)) found.push_back(*one);
  }
  return found;
}

namespace {

// What several processes may divide among them besides what they do.
std::vector<Check::Saver> divisions(const Run& run, double now) {
  const TrainingConfig& training = run.config.training;
  const DistributedConfig& distributed = run.config.distributed;
  if (distributed.processes < 2 || training.optimizer.has_muon()) return {};
  constexpr std::array kPrices = {"each process updates a part of the weights and sends it",
                                  "gradients are sent in every micro-batch",
                                  "gradients are sent in every micro-batch, and weights twice"};
  std::vector<Check::Saver> savers;
  config::Facts facts = device::facts_of(run.device, device::resolve_precision(training.precision, run.device));
  facts.data_processes = distributed.data_processes();
  for (int64_t stage = distributed.zero + 1; stage <= std::ssize(kPrices); ++stage) {
    Config divided = run.config;
    divided.distributed.zero = stage;
    if (config::find_refusal(divided, facts)) continue;
    savers.push_back({fmt::format("distributed.zero: {}", stage),
                      now - Run{{divided, run.device, run.attention}}.needed(training),
                      kPrices[static_cast<size_t>(stage - 1)]});
  }
  return savers;
}

}  // namespace

std::vector<Check::Saver> find_savers(const PlacedRun& asked, double data_bytes) {
  const Run run{asked};
  const double now = run.needed(run.config.training);
  std::vector<Check::Saver> savers;
  for (const Candidate& candidate : candidates(run)) {
    Config changed = run.config;
    candidate.apply(changed.training);
    if (config::find_refusal(changed)) continue;
    savers.push_back({candidate.setting, now - run.needed(changed.training), candidate.price});
  }
  for (Check::Saver& saver : divisions(run, now)) savers.push_back(std::move(saver));
  if (data_bytes > 0) savers.push_back({kDataSaver, data_bytes, "batches come from the host"});
  std::erase_if(savers, [](const Check::Saver& saver) { return saver.bytes <= 0; });
  std::stable_sort(savers.begin(), savers.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return savers;
}

}  // namespace gpt::plan
