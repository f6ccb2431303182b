#include "gpt/diagnose/savers.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "gpt/device/precision.h"
#include "gpt/diagnose/estimates.h"
#include "gpt/ops/classifier.h"

namespace gpt {
namespace {

struct Candidate {
  std::string setting, price;
  std::function<void(TrainingConfig&)> apply;
};

// The largest divisor of `value` that is at most its half.
int64_t half_of(int64_t value) {
  int64_t part = value / 2;
  while (part > 1 && value % part != 0) --part;
  return part;
}

std::vector<Candidate> candidates(const ModelConfig& model, const TrainingConfig& training, const DeviceInfo& device,
                                  const std::string& attention) {
  const ExecutionConfig& execution = training.execution;
  const bool cuda = device.device.is_cuda();
  std::vector<Candidate> all;
  const auto recompute = [&](const char* name, GradientCheckpointing level, const char* price) {
    if (execution.gradient_checkpointing >= level) return;
    all.push_back({fmt::format("training.gradient_checkpointing: {}", name), price,
                   [level](TrainingConfig& t) { t.execution.gradient_checkpointing = level; }});
  };
  recompute("block", GradientCheckpointing::block, "the forward pass is done twice: about a third more time");
  recompute("selective", GradientCheckpointing::selective,
            "all but attention is done twice: about a quarter more time");
  if (execution.use_compile)
    recompute("norm", GradientCheckpointing::norm, "norms and activations are done twice, products are not");
  if (training.optimizer.fused_adamw && training.optimizer.state_dtype == StateDtype::float32) {
    all.push_back({"training.use_8bit: true", "AdamW's moments are rounded to 8-bit codes",
                   [](TrainingConfig& t) { t.optimizer.state_dtype = StateDtype::int8; }});
  }
  const bool end_to_end = resolve_precision(training.precision, device).end_to_end;
  if (end_to_end && training.optimizer.fused_adamw && training.precision.master_weights) {
    all.push_back({"training.master_weights: false", "weights have 16 bits alone, and updates are rounded at random",
                   [](TrainingConfig& t) { t.precision.master_weights = false; }});
  }
  if (end_to_end && gradient_type(training, end_to_end) == at::kFloat) {
    all.push_back({"training.gradient_dtype: bfloat16", "every micro-batch that is added to a gradient rounds it",
                   [](TrainingConfig& t) { t.precision.gradient_dtype = GradientDtype::bfloat16; }});
  }
  if (training.batch_size > 1) {
    const int64_t part = half_of(training.batch_size),
                  steps = training.gradient_accumulation_steps * (training.batch_size / part);
    all.push_back({fmt::format("training.batch_size: {} and training.gradient_accumulation_steps: {}", part, steps),
                   "the same effective batch; slower where smaller products leave the device idle",
                   [part, steps](TrainingConfig& t) { t.batch_size = part, t.gradient_accumulation_steps = steps; }});
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
    const int64_t tokens = training.batch_size * model.block_size, kLeast = 256,
                  rows = ops::classifier_chunk_rows(tokens, model.padded_vocab(), execution.loss_chunk_rows, !cuda),
                  fewer = std::max(kLeast, rows / 4);
    all.push_back({fmt::format("training.loss_chunk_rows: {}", fewer), "the head's products are smaller",
                   [fewer](TrainingConfig& t) { t.execution.loss_chunk_rows = fewer; }});
  }
  if (attention.starts_with("math") && execution.attention == AttentionKernel::math) {
    all.push_back({"training.attention: auto", "less time too",
                   [](TrainingConfig& t) { t.execution.attention = AttentionKernel::automatic; }});
  }
  if (cuda && execution.compile_mode != CompileMode::standard) {
    all.push_back({"training.compile_mode: default", "the host launches every kernel of every step",
                   [](TrainingConfig& t) { t.execution.compile_mode = CompileMode::standard; }});
  }
  return all;
}

}  // namespace

std::vector<Check::Saver> find_savers(const Config& config, const DeviceInfo& device, const std::string& attention,
                                      double data_bytes) {
  const auto needed = [&](const TrainingConfig& training) {
    // What asks for unfused attention is the setting itself, or nothing that a setting changes.
    const bool is_unasked = training.execution.attention != config.training.execution.attention;
    const ActivationForm form =
        activation_form(config.model, training, device, resolve_precision(training.precision, device),
                        is_unasked ? "flash" : attention);
    return estimate_memory(config.model, training, form).total();
  };
  const double now = needed(config.training);
  std::vector<Check::Saver> savers;
  for (const Candidate& candidate : candidates(config.model, config.training, device, attention)) {
    TrainingConfig changed = config.training;
    candidate.apply(changed);
    savers.push_back({candidate.setting, now - needed(changed), candidate.price});
  }
  if (data_bytes > 0) savers.push_back({"data.resident: off", data_bytes, "batches come from the host"});
  std::erase_if(savers, [](const Check::Saver& saver) { return saver.bytes <= 0; });
  std::stable_sort(savers.begin(), savers.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return savers;
}

}  // namespace gpt
