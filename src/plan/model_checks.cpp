#include "gpt/plan/model_checks.h"
#include "gpt/plan/sent_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/checkpoint/snapshot.h"
#include "gpt/config/batch.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/process_memory.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/host.h"
#include "gpt/exchange/hugging_face.h"
#include "gpt/layout/tuning.h"
#include "gpt/optim/muon.h"
#include "gpt/run/teacher.h"

namespace gpt::plan {
namespace {

constexpr int64_t kTensorCoreMultiple = 64;
constexpr int64_t kHeadMultiple = 8;

// Another micro-batch of at most `largest` sequences with the same effective batch.
std::string smaller_batch(const TrainingConfig& training, int64_t largest) {
  const int64_t effective = training.batch_size * training.gradient_accumulation_steps;
  const int64_t batch_size = config::largest_divisor(effective, largest);
  return fmt::format(
      "set training.batch_size: {} and training.gradient_accumulation_steps: {} (the same effective batch)", batch_size,
      effective / batch_size);
}

std::string memory_fix(const ModelConfig& model, const TrainingConfig& training, const ActivationForm& form,
                       double bytes) {
  TrainingConfig accumulating = training;
  accumulating.gradient_accumulation_steps = std::max<int64_t>(2, training.gradient_accumulation_steps);
  const auto largest = largest_batch_size(model, accumulating, form, bytes);
  return largest ? smaller_batch(training, *largest)
                 : "not even one sequence fits: lower model.n_layer, model.n_embd or model.block_size";
}

// Why keys of attention: blocks change nothing; empty where they do, or where none is set.
std::string idle_blocks(const ModelConfig& model) {
  const ModelConfig unset;
  if (model.attention == AttentionForm::blocks && model.top_blocks() == 0) {
    return fmt::format("model.attention: blocks changes nothing: no query has more than {} of {} before its own",
                       plural((model.block_size - 1) / model.attention_block, "complete block"),
                       plural(model.attention_block, "position"));
  }
  if (model.attention == AttentionForm::blocks) return "";
  for (const auto& [key, value, otherwise] :
       {std::tuple{"attention_block", model.attention_block, unset.attention_block},
        std::tuple{"attention_top_blocks", model.attention_top_blocks, unset.attention_top_blocks}})
    if (value != otherwise) return fmt::format("model.{} {} changes nothing: model.attention is full", key, value);
  return "";
}

}  // namespace

Check check_parameters(const ModelConfig& model) {
  int64_t total = 0;
  std::string groups;
  for (const auto& [group, count] : layout::parameter_groups(model)) {
    if (count == 0) continue;
    total += count;
    groups += fmt::format("{}{} {}", groups.empty() ? "" : ", ", group, format_count(static_cast<double>(count)));
  }
  return passed("parameters", fmt::format("{}: {}", format_count(static_cast<double>(total)), groups));
}

Check check_vocabulary(const ModelConfig& model, bool cuda) {
  const int64_t rows = model.padded_vocab();
  const std::string detail = fmt::format("{} in {}", plural(*model.vocab_size, "token"), plural(rows, "row"));
  if (cuda && rows % kTensorCoreMultiple != 0) {
    return warned("vocabulary",
                  fmt::format("{}, not a multiple of {}: the head's matrix products miss the fast kernels", detail,
                              kTensorCoreMultiple),
                  fmt::format("set model.vocab_multiple: {}", kTensorCoreMultiple));
  }
  return passed("vocabulary", detail);
}

Check check_export(const ModelConfig& model) {
  const std::string limits = exchange::export_limits(model);
  if (limits.empty()) return passed("export", "transformers and llama.cpp have models of this form");
  return warned("export", limits, "choose the form of GPT-2 or of Llama if other programs are to run it");
}

std::string describe_sparse_attention(const ModelConfig& model) {
  if (model.top_blocks() > 0) {
    return fmt::format("attention to {} that each query chooses and its own, of {} each",
                       plural(model.top_blocks(), "block"), plural(model.attention_block, "position"));
  }
  const int64_t layers = model.windowed_layers();
  if (layers == 0) return "";
  return fmt::format("a window of {} in {} of {}", plural(model.attention_window, "position"), layers,
                     plural(model.n_layer, "layer"));
}

std::string idle_attention(const ModelConfig& model) {
  if (std::string idle = idle_blocks(model); !idle.empty()) return idle;
  const bool rotates_otherwise = model.rope_window_theta > 0;
  if (model.attention_window == 0 || model.windowed_layers() > 0 || rotates_otherwise) return "";
  const std::string why =
      model.attention_window >= model.block_size
          ? fmt::format("the sequences have only {}", plural(model.block_size, "token"))
          : fmt::format("window_pattern {} leaves none of {} windowed, because the last one is always full",
                        model.window_pattern, plural(model.n_layer, "layer"));
  return fmt::format("model.attention_window {} changes nothing: {}", model.attention_window, why);
}

Check check_attention(const ModelConfig& model, bool cuda, const std::string& path) {
  const bool fused = !path.starts_with("math");
  if (const std::string idle = idle_attention(model); !idle.empty()) {
    const bool is_of_blocks = model.attention == AttentionForm::blocks || model.attention_window == 0;
    return warned(
        "attention", idle,
        is_of_blocks
            ? "leave model.attention, attention_block and attention_top_blocks out, or set them to fewer or smaller blocks"
            : "set model.attention_window: 0, or a smaller one and model.window_pattern: SSSL");
  }
  if (cuda && model.head_dim() % kHeadMultiple != 0) {
    return warned("attention",
                  fmt::format("{}: the head size {} is not a multiple of {}, as flash attention wants", path,
                              model.head_dim(), kHeadMultiple),
                  "choose model.n_embd / model.n_head as 64 or 128");
  }
  const std::string sparse = describe_sparse_attention(model);
  if (fused) return passed("attention", path + " kernel" + (sparse.empty() ? "" : ", " + sparse));
  return warned("attention", path, "set training.dtype: auto");
}

MemoryBudget memory_budget(at::Device device, double fraction, int64_t processes) {
  const auto of_each = static_cast<double>(processes),
             free_of_host = static_cast<double>(host::free_memory_bytes(processes));
  const double share = fraction * static_cast<double>(device::describe_device(device).memory_bytes);
  if (device.is_cuda()) {
    return {.available = std::min(static_cast<double>(device::free_bytes(device)), share),
            .program = 0,
            .host = free_of_host};
  }
  // Code and tables that LibTorch and oneDNN load and build during the first step only.
  constexpr double kLater = 10e6;
  const auto resident = static_cast<double>(process_memory::bytes());
  const auto tensors =
      static_cast<double>(device::cpu_memory().extent);  // the run will have the room that these take now
  return {.available = std::min(free_of_host + resident, share / of_each), .program = resident - tensors + kLater};
}

MemoryBudget memory_budget(const run::Setup& setup) {
  const TrainingConfig& training = setup.config.training;
  MemoryBudget memory = memory_budget(setup.device.device, training.allocator.memory_fraction, setup.local_processes);
  memory.exchange = exchange_bytes(setup.config, setup.precision.end_to_end, setup.mesh.all->size());
  return memory;
}

MemoryBudget of_each(MemoryBudget all, at::Device device, int64_t processes) {
  (device.is_cpu() ? all.available : all.host) /= static_cast<double>(processes);
  return all;
}

Check check_memory(const ModelConfig& model, const TrainingConfig& training, const ActivationForm& form,
                   const MemoryBudget& memory) {
  const report::MemoryUse estimate = estimate_memory(model, training, form);
  report::MemoryUse with_data = estimate;
  with_data.data = memory.data;
  auto parts = with_data.parts();
  parts.emplace_back("exchange", memory.exchange);
  parts.emplace_back("program", memory.program);
  const double needed = memory.taken() + estimate.total();
  std::string list;
  Check check;
  for (const auto& [name, bytes] : parts) {
    if (bytes > 0) list += fmt::format("{}{} {}", list.empty() ? "" : ", ", name, format_bytes(bytes));
    check.values.emplace_back(fmt::format("{}_bytes", name), bytes);
  }
  const double comfortable = memory.comfortable();
  const bool is_comfortable = estimate.total() <= comfortable;
  const auto largest = largest_batch_size(model, training, form, comfortable);
  const std::string need = format_bytes(needed), available = format_bytes(memory.available);
  check.name = "memory of the run";
  check.detail = needed > memory.available
                     ? fmt::format("about {}, and it may use {}: {}", need, available, list)
                     : fmt::format("about {} of the {} that it may use: {}", need, available, list);
  if (!is_comfortable) {
    check.status = needed > memory.available ? Check::Status::fail : Check::Status::warn;
    check.fix =
        comfortable <= 0
            ? fmt::format("give the run more memory: {} are taken before its first tensor, whatever the model is",
                          format_bytes(memory.taken()))
            : memory_fix(model, training, form, comfortable);
  }
  if (estimate.host > 0) {
    check.detail += fmt::format("; and {} of the host's memory", format_bytes(estimate.host));
    check.values.emplace_back("host_bytes", estimate.host);
  }
  if (estimate.host > memory.host) {
    check.status = Check::Status::fail;
    check.detail += fmt::format(", of which {} is free", format_bytes(memory.host));
    const bool is_wide = training.optimizer.state_dtype != StateDtype::int8;
    if (check.fix.empty())
      check.fix = training.optimizer.offload == 0 ? "lower training.swap_activations"
                                                  : fmt::format("lower training.offload_optimizer{}",
                                                                is_wide ? ", or set training.use_8bit: true" : "");
  }
  const auto file = static_cast<double>(checkpoint::checkpoint_bytes(model, training));
  if (checkpoint::is_to_be_copied(training.cadence.async_checkpoint, file)) {
    const double copy = file / static_cast<double>(form.checkpoint_parts);
    check.detail +=
        fmt::format("; and, where the host has it, {} for a copy to write checkpoints from", format_bytes(copy));
    check.values.emplace_back("checkpoint_copy", copy);
  }
  check.values.emplace_back("needed_bytes", needed);
  check.values.emplace_back("available_bytes", memory.available);
  check.values.emplace_back("largest_batch_size", largest.value_or(0));
  const char* const verdict = is_comfortable ? "yes" : needed <= memory.available ? "hardly" : "no";
  const std::string most =
      largest ? fmt::format("at most {} at a time", plural(*largest, "sequence")) : "not even one sequence";
  check.answer = {"Does it fit?",
                  fmt::format("{}: it needs about {}, and there is {}; {} would fit", verdict, need, available, most)};
  return check;
}

StepFlops flops_per_step(const ModelConfig& model, const TrainingConfig& training) {
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(model, training.tuning);
  const int64_t tokens =
      training.batch_size * training.gradient_accumulation_steps * training.sequence_length_for(model);
  const double per_token =
      layout::flops_per_token(in_training(model, training), rows) + run::teacher_flops_per_token(model, training);
  return {.model = per_token * static_cast<double>(tokens), .muon = optim::muon_work(rows, training.optimizer).flops};
}

Check check_teacher(const UpdateConfig& config, const DataConfig& data, const data::Corpus& corpus) {
  const DistillationConfig& distillation = config.training.distillation;
  try {
    run::require_fitting_teacher(config, data, corpus);
  } catch (const Error& error) {
    return failed("teacher", error.what(), "name another model in training.distill_from, or leave it out");
  }
  const int64_t parameters = distillation.teacher ? layout::parameter_count(*distillation.teacher) : 0;
  return passed("teacher", fmt::format("{}: {} parameters, {} of the training loss", distillation.from,
                                       format_count(static_cast<double>(parameters)), distillation.weight));
}

std::string describe_muon(const ModelConfig& model, const TrainingConfig& training, int64_t processes,
                          int64_t parts_of_muon) {
  constexpr double kMuch = 0.25;
  const StepFlops flops = flops_per_step(model, training);
  if (flops.muon == 0) return "";
  const double of_each = flops.muon / static_cast<double>(parts_of_muon),
               share = of_each / (of_each + flops.model / static_cast<double>(processes));
  const int64_t matrices =
      optim::muon_work(layout::parameter_table(model, training.tuning), training.optimizer).matrices;
  return fmt::format("Newton-Schulz takes {:.{}f} % of the operations of a step, {} for {}{}", 100 * share,
                     share < 0.1 ? 1 : 0, format_flops(flops.muon),
                     matrices == 1 ? "a matrix" : fmt::format("{} matrices", matrices),
                     share < kMuch ? "" : "; a larger training.total_batch_size would lower that");
}

Check check_compute(const ModelConfig& model, const TrainingConfig& training, const run::Plan& plan,
                    std::optional<double> product_speed) {
  constexpr double kUsualShare = 0.4, kDay = 86400;
  // Tokens per parameter that make the best model for the FLOPs (Hoffmann et al., 2022, "Training Compute-Optimal Large
  // Language Models").
  constexpr double kChinchilla = 20;
  const double per_token =
      layout::flops_per_token(in_training(model, training), layout::parameter_table(model, training.tuning)) +
      run::teacher_flops_per_token(model, training);
  const auto tokens = static_cast<double>(training.batch_size * training.gradient_accumulation_steps *
                                          training.sequence_length_for(model));
  const double per_step = flops_per_step(model, training).all(),
               total = per_step * static_cast<double>(plan.total_steps);
  const double seconds = product_speed ? total / (kUsualShare * *product_speed) : 0;
  const double parameters = layout::parameter_count(model), all_tokens = tokens * static_cast<double>(plan.total_steps);
  const double best_epochs = kChinchilla * parameters / tokens / static_cast<double>(plan.steps_per_epoch);
  std::string detail;
  if (product_speed) {
    detail = fmt::format("about {}, at {:.0f} % of the {}/s that matrix products reach here; ",
                         format_duration(seconds), 100 * kUsualShare, format_flops(*product_speed));
  }
  detail += fmt::format("{} per token, {} per step, {} in all", format_flops(per_token), format_flops(per_step),
                        format_flops(total));
  detail += fmt::format("; {} tokens are {} per parameter, where Chinchilla's rule of {} would take {} epochs",
                        format_count(all_tokens), format_number(all_tokens / parameters), kChinchilla,
                        format_number(best_epochs));
  if (const std::string muon = describe_muon(model, training); !muon.empty()) detail += "; " + muon;
  Check check = seconds > kDay ? warned("compute", detail, kShorterRun) : passed("compute", detail);
  check.values = {{"flops_per_token", per_token},
                  {"flops_per_step", per_step},
                  {"flops", total},
                  {"tokens", all_tokens},
                  {"tokens_per_parameter", all_tokens / parameters},
                  {"chinchilla_epochs", best_epochs}};
  return check;
}

}  // namespace gpt::plan
