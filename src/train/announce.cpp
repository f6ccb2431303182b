#include "gpt/train/announce.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/optim/lr_schedule.h"
#include "gpt/train/metrics.h"

namespace gpt {

void announce_device(const DeviceInfo& device, const DeviceChoice& choice) {
  const double gigabytes = device.memory_bytes / 1e9;
  if (device.device.is_cuda()) {
    log::success(fmt::format("Using GPU: {}, {:.1f} GB (compute capability {}.{})", device.name, gigabytes, device.compute_major,
                             device.compute_minor));
    return;
  }
  if (!choice.reason.empty()) log::warn(fmt::format("training on the CPU: {}", choice.reason));
  log::info(fmt::format("Using CPU: {}, {} threads, {:.1f} GB", device.name, at::get_num_threads(), gigabytes));
}

void announce_methods(const Config& config, const Precision& precision, const DeviceInfo& device) {
  log::info("Precision: " + precision.reason);
  if (precision.tf32) log::success("Enabled TF32");
  if (precision.grad_scaler) log::success("GradScaler on the device");
  log::success("Using fused AdamW");
  const std::string path = attention_path(config.model, device.device, precision.compute_type(), /*training=*/true);
  if (path == "flash" || path == "cudnn") {
    log::success(path == "flash" ? "Flash attention" : "Flash attention (cuDNN)");
  } else {
    log::info("Attention without the flash path: " + path);
  }
  if (config.training.gradient_checkpointing) log::success("Gradient checkpointing: each block is computed again in backward");
  if (config.training.use_compile) {
    log::info(fmt::format("use_compile: this build has neither fused operators nor graphs for {}. Continuing with uncompiled model",
                          device.device.is_cuda() ? "CUDA" : "the CPU"));
  }
}

void announce_run(const Config& config, const GPT& model, const Corpus& corpus, const RunPlan& plan, bool resident) {
  const ModelConfig& m = config.model;
  log::info(fmt::format("Model: {} parameters, {} layers, {} heads, width {}, block {}, vocabulary {} (padded to {})",
                        format_count(model.parameter_count()), m.n_layer, m.n_head, m.n_embd, m.block_size, *m.vocab_size,
                        m.padded_vocab()));
  log::info(fmt::format("Data: {}: {} training and {} validation tokens, {}", corpus.source, corpus.train.size(),
                        corpus.validation.size(), resident ? "resident" : "streamed"));
  const TrainingConfig& t = config.training;
  const int64_t sequences = t.batch_size * t.gradient_accumulation_steps;
  log::info(fmt::format("Run: {} steps ({} steps an epoch), {} sequences = {} tokens a step, warm-up {} steps", plan.total_steps,
                        plan.steps_per_epoch, sequences, sequences * m.block_size, warmup_steps(t, plan.total_steps)));
}

void announce_changes(const Config& saved, const Config& now) {
  std::string refused;
  for (const auto& change : config::difference(saved, now)) {
    const std::string text = fmt::format("{}: {} -> {}", change.key, change.before, change.after);
    if (change.safe_on_resume) {
      log::info("changed since the checkpoint: " + text);
    } else {
      refused += (refused.empty() ? "" : ", ") + text;
    }
  }
  if (refused.empty()) return;
  throw Error(ExitCode::checkpoint,
              fmt::format("{} holds a run with another configuration ({}): set the old values back, or choose another output_dir",
                          now.output_dir, refused));
}

}  // namespace gpt
