#include "gpt/diagnose/model_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpt/model/parameter_shapes.h"
#include "gpt/train/metrics.h"

namespace gpt {
namespace {

constexpr int64_t kTensorCoreMultiple = 64;
constexpr int64_t kHeadMultiple = 8;

// Another micro-batch of at most `largest` sequences with the same effective batch.
std::string smaller_batch(const TrainingConfig& training, int64_t largest) {
  const int64_t effective = training.batch_size * training.gradient_accumulation_steps;
  int64_t batch_size = std::min(largest, effective);
  while (effective % batch_size != 0) --batch_size;
  return fmt::format(
      "set training.batch_size: {} and training.gradient_accumulation_steps: {} (the same effective batch)", batch_size,
      effective / batch_size);
}

std::string memory_fix(const ModelConfig& model, TrainingConfig training, const ActivationForm& form, double bytes) {
  TrainingConfig accumulating = training;
  accumulating.gradient_accumulation_steps = std::max<int64_t>(2, training.gradient_accumulation_steps);
  const auto largest = largest_batch_size(model, accumulating, form, bytes);
  if (largest) return smaller_batch(training, *largest);
  training.gradient_checkpointing = true;
  training.batch_size = 1;
  const bool helps = estimate_memory(model, training, form).total() <= bytes;
  return helps ? "set training.gradient_checkpointing: true and training.batch_size: 1"
               : "not even one sequence fits: lower model.n_layer, model.n_embd or model.block_size";
}

}  // namespace

Check check_parameters(const ModelConfig& model) {
  int64_t total = 0;
  std::string groups;
  for (const auto& [group, count] : parameter_groups(model)) {
    if (count == 0) continue;
    total += count;
    groups += fmt::format("{}{} {}", groups.empty() ? "" : ", ", group, format_count(static_cast<double>(count)));
  }
  return passed("parameters", fmt::format("{}: {}", format_count(static_cast<double>(total)), groups));
}

Check check_vocabulary(const ModelConfig& model, bool cuda) {
  const int64_t rows = model.padded_vocab();
  const std::string detail = fmt::format("{} tokens in {} rows", *model.vocab_size, rows);
  if (cuda && rows % kTensorCoreMultiple != 0) {
    return warned(
        "vocabulary",
        fmt::format("{}, no multiple of {}: the head's products miss the fast kernels", detail, kTensorCoreMultiple),
        fmt::format("set model.vocab_multiple: {}", kTensorCoreMultiple));
  }
  return passed("vocabulary", detail);
}

Check check_attention(const ModelConfig& model, bool cuda, const std::string& path) {
  const bool fused = !path.starts_with("math");
  if (cuda && model.head_dim() % kHeadMultiple != 0) {
    return warned("attention",
                  fmt::format("{}: heads of {} are no multiple of {}, which flash attention wants", path,
                              model.head_dim(), kHeadMultiple),
                  "choose model.n_embd / model.n_head as 64 or 128");
  }
  if (fused) return passed("attention", path + " kernel");
  if (!cuda && model.dropout > 0) {
    return warned("attention", "dropout on a CPU takes the unfused kernel: more time and memory",
                  "set model.dropout: 0 if the text is long enough not to be learned by heart");
  }
  return warned("attention", path, "set training.dtype: auto");
}

Check check_memory(const ModelConfig& model, const TrainingConfig& training, const ActivationForm& form,
                   double free_bytes) {
  const MemoryEstimate estimate = estimate_memory(model, training, form);
  const std::string detail = fmt::format(
      "about {:.2f} GB of {:.1f} GB free: weights {:.2f}, gradients {:.2f}, AdamW {:.2f}, activations {:.2f}, "
      "workspace {:.2f}",
      estimate.total() / 1e9, free_bytes / 1e9, estimate.weights / 1e9, estimate.gradients / 1e9,
      estimate.moments / 1e9, estimate.activations / 1e9, estimate.workspace / 1e9);
  constexpr double kComfortable = 0.9;  // fragmentation and the libraries' own buffers take a part
  const double target = kComfortable * free_bytes;
  if (estimate.total() > free_bytes) {
    return failed("memory of the run", detail, memory_fix(model, training, form, target));
  }
  if (estimate.total() > target) return warned("memory of the run", detail, memory_fix(model, training, form, target));
  return passed("memory of the run", detail);
}

Check check_compute(const ModelConfig& model, const TrainingConfig& training, int64_t total_steps,
                    std::optional<double> peak_flops) {
  constexpr double kUsualShare = 0.4;
  const double per_token = flops_per_token(model);
  const double tokens =
      static_cast<double>(training.batch_size * training.gradient_accumulation_steps * model.block_size);
  const double total = per_token * tokens * static_cast<double>(total_steps);
  std::string detail = fmt::format("{} FLOPs per token, {:.3g} TFLOPs per step, {:.3g} PFLOPs in all",
                                   format_count(per_token), per_token * tokens / 1e12, total / 1e15);
  if (peak_flops) {
    detail += fmt::format(": about {} at {:.0f} % of this card's peak",
                          format_duration(total / (kUsualShare * *peak_flops)), 100 * kUsualShare);
  }
  return passed("compute", detail);
}

}  // namespace gpt
