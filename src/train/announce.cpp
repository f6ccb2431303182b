#include "gpt/train/announce.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <string_view>

#include "gpt/config/output_folder.h"
#include "gpt/core/format.h"
#include "gpt/core/host_name.h"
#include "gpt/core/log.h"
#include "gpt/data/document_mask.h"
#include "gpt/data/stages.h"
#include "gpt/device/memory.h"
#include "gpt/exchange/hugging_face.h"
#include "gpt/layout/freeze.h"
#include "gpt/model/compile.h"
#include "gpt/optim/lr_schedule.h"
#include "gpt/optim/make_optimizer.h"
#include "gpt/plan/model_checks.h"

namespace gpt {

std::string to_text(const DeviceInfo& device) {
  const double gigabytes = device.memory_bytes / 1e9;
  if (device.device.is_cuda()) {
    return fmt::format("{}, {:.1f} GB (compute capability {}.{})", device.name, gigabytes, device.compute_major,
                       device.compute_minor);
  }
  return fmt::format("{}, {}, {:.1f} GB", device.name, plural(at::get_num_threads(), "thread"), gigabytes);
}

void announce_device(const DeviceInfo& device, const DeviceChoice& choice, bool has_gpu) {
  if (device.device.is_cuda()) {
    log::success("Using GPU: " + to_text(device));
    return;
  }
  // Without a GPU in the machine there is nothing to explain, unless one was asked for.
  if (!choice.reason.empty() && (choice.is_wished || has_gpu)) {
    log::warn(
        fmt::format("training on the CPU{}: {}", choice.is_wished ? ", although use_gpu is true" : "", choice.reason));
  }
  log::info("Using CPU: " + to_text(device));
}

namespace {

const char* recomputed_by(GradientCheckpointing level) {
  switch (level) {
    case GradientCheckpointing::activation: return "activations";
    case GradientCheckpointing::norm: return "activations and norms";
    case GradientCheckpointing::selective: return "all but attention";
    case GradientCheckpointing::block: return "each block";
    case GradientCheckpointing::none: break;
  }
  return "nothing";
}

void announce_frozen(const Config& config, const std::vector<ParameterRow>& rows) {
  if (config.training.freeze.empty()) return;
  const int64_t first = first_trained_layer(rows);
  const std::string end = first < 0 ? ""
                                    : fmt::format("; the backward pass ends {} {}",
                                                  first < config.model.n_layer ? "at block" : "after block",
                                                  std::min(first, config.model.n_layer - 1));
  log::success(fmt::format("Frozen ({}): {} of {} parameters stay as they are{}",
                           fmt::join(config.training.freeze, ", "),
                           format_count(static_cast<double>(parameter_count(rows) - trained_count(rows))),
                           format_count(static_cast<double>(parameter_count(rows))), end));
  if (config.training.init_from.empty())
    log::warn(
        "training.freeze keeps weights that were drawn at random, because the run does not begin with those of another model; "
        "name one with training.init_from");
}

// Of the model among so many processes.
std::string describe_division(const DistributedConfig& asked, int64_t processes) {
  const auto [tensor, stages] = std::pair(asked.tensor_parallel, asked.pipeline_parallel);
  if (tensor > 1 && stages > 1)
    return fmt::format("; each {} of them divide one of {} stages of the model", tensor, stages);
  if (stages > 1)
    return stages == processes ? "; each has a stage of the model"
                               : fmt::format("; each has one of {} stages of the model", stages);
  if (tensor > 1)
    return tensor == processes ? "; they divide the model" : fmt::format("; each {} of them divide the model", tensor);
  return "";
}

}  // namespace

void announce_methods(const run::Setup& setup) {
  const Config& config = setup.config;
  const DeviceInfo& device = setup.device;
  const Precision& precision = setup.precision;
  if (!setup.dtype_change.empty()) log::warn(setup.dtype_change);
  log::info("Precision: " + precision.reason);
  if (precision.tf32) log::success("Enabled TF32");
  if (precision.grad_scaler) log::success("GradScaler on the device");
  log::success(fmt::format("Using {}", name_of_optimizer(config.training.optimizer)));
  const int64_t processes = setup.mesh.all->size();
  if (const std::string muon =
          plan::describe_muon(config.model, config.training, processes,
                              config.distributed.zero > 0 ? processes : setup.mesh.pipeline.stages->size());
      !muon.empty())
    log::info(muon);
  const std::vector<ParameterRow> rows = parameter_table(config.model, config.training.freeze);
  const StateBytes state = state_bytes(rows, flat_layout(rows), config.training.optimizer);
  if (state.host > 0) {
    log::success(fmt::format("Optimizer offload: {} of {} of the optimizer's state is in the memory of the host",
                             format_bytes(static_cast<double>(state.host)),
                             format_bytes(static_cast<double>(state.host + state.device))));
  }
  announce_frozen(config, rows);
  const std::string path = attention_path(config.model, config.training.execution, device.device,
                                          precision.compute_type(), /*training=*/true);
  if (path == "flash" || path == "cudnn") {
    log::success(path == "flash" ? "Flash attention" : "Flash attention (cuDNN)");
  } else {
    log::info("Attention without the flash path: " + path);
  }
  const GradientCheckpointing level = config.training.execution.gradient_checkpointing;
  if (level != GradientCheckpointing::none)
    log::success(fmt::format("Gradient checkpointing: the backward pass computes {} again", recomputed_by(level)));
  if (const int64_t swapped = config.training.execution.swap_activations.value_or(0); swapped > 0)
    log::success(
        fmt::format("Buffer swapping: what the first {} of {} keep for the backward pass waits in the host's memory",
                    swapped, plural(config.model.n_layer, "block")));
  if (!setup.batch_reason.empty()) log::info(setup.batch_reason);
}

void announce_processes(const distributed::Group& group, at::Device device, const DistributedConfig& asked) {
  const distributed::Ranks& ranks = group.ranks();
  if (device.is_cuda() && gpu_count() > ranks.local_size) {
    log::info(fmt::format("Using {} of {} GPUs; distributed.processes: auto uses all", ranks.local_size, gpu_count()));
  }
  if (ranks.size == 1) return;
  log::success(fmt::format("{} processes, started by {}, {} each; they meet {}{}{}", ranks.size, ranks.launcher,
                           plural(at::get_num_threads(), "thread"),
                           ranks.address.empty() ? "in a file of output_dir"
                                                 : fmt::format("at {}:{}", ranks.address, ranks.port),
                           describe_division(asked, ranks.size),
                           asked.zero == 0   ? ""
                           : asked.zero == 1 ? "; each has a part of the optimizer's state"
                           : asked.zero == 2
                               ? "; each has a part of the optimizer's state and of the gradients"
                               : "; each has a part of the optimizer's state, of the gradients and of the "
                                 "weights"));
  if (const std::string signals = distributed::signals_under(ranks.launcher); !signals.empty())
    log::info(fmt::format("{}; to stop with everything saved, send SIGTERM to a gpt-train process: kill {}, on {}",
                          signals, getpid(), host_name()));
  if (ranks.launcher != "gpt-train" && asked.processes != 1 && asked.processes != ranks.size)
    log::info(fmt::format("distributed.processes: {} counts only where gpt-train starts the processes itself",
                          asked.processes == 0 ? "auto" : std::to_string(asked.processes)));
}

void announce_run(const run::Run& run) {
  const Config& config = run.config();
  const Corpus& corpus = run.setup().corpus;
  const run::Plan& plan = run.plan();
  const ModelConfig& m = config.model;
  const std::string padded = m.padded_vocab() > *m.vocab_size ? fmt::format(" (padded to {})", m.padded_vocab()) : "";
  const std::string sparse = plan::describe_sparse_attention(m);
  log::info(fmt::format("Model: {} parameters, {}, {}, width {}, block {}, vocabulary {}{}{}",
                        format_count(static_cast<double>(parameter_count(run.config().model))),
                        plural(m.n_layer, "layer"), plural(m.heads(), "head"), m.n_embd, m.block_size, *m.vocab_size,
                        padded, sparse.empty() ? "" : ", " + sparse));
  if (const std::string idle = plan::idle_attention(m); !idle.empty()) log::warn(idle);
  if (const std::string limits = exchange::export_limits(m); !limits.empty()) log::warn(limits);
  log::info(fmt::format("Data: {}: {} training and {} validation tokens, {}", corpus.source,
                        with_commas(corpus.train.size()), with_commas(corpus.validation.size()),
                        run.state().loader.resident() ? "resident" : "streamed"));
  if (const auto separator = document_separator(config.data, corpus)) {
    const auto [description, idle] = find_documents(corpus, *separator);
    idle.empty() ? log::info("Documents: " + description) : log::warn(idle);
  }
  if (run.teacher()) log::info(run::describe_teacher(*run.teacher(), config.training.distillation));
  const TrainingConfig& t = config.training;
  const int64_t sequences = t.batch_size * t.gradient_accumulation_steps;
  const std::string epochs =
      config.data.stages.empty()
          ? fmt::format("{} an epoch, {} {}", plural(plan.steps_per_epoch, "step"), format_number(plan.epochs()),
                        plan.total_steps == plan.steps_per_epoch ? "epoch" : "epochs")
          : "in " + plural(std::ssize(config.data.stages), "stage");
  log::info(fmt::format("Run: {} ({}), {} = {} a step, warm-up {}", plural(plan.total_steps, "step"), epochs,
                        plural(sequences, "sequence"), plural(sequences * m.block_size, "token"),
                        plural(warmup_steps(run.schedule(), plan.total_steps), "step")));
  log::info("Learning rate: " + describe_schedule(run.schedule(), plan.total_steps));
  for (const std::string& stage : describe_stages(config, corpus)) log::info("Stage " + stage);
}

std::vector<std::string> describe_stages(const Config& config, const Corpus& corpus) {
  if (config.data.stages.empty()) return {};
  const std::vector<std::string> names = stage_sources(config.data);
  const std::vector<StageBatches> stages = stage_batches(config.data, config.training, config.model.block_size);
  std::vector<std::string> result;
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageBatches& stage = stages[i];
    double total = 0;
    for (const auto& [source, weight] : stage.mix) total += weight;
    std::vector<std::string> files;
    for (const auto& [source, weight] : stage.mix) {
      const double tokens = static_cast<double>(*stage.batches * stage.batch_size * stage.block_size) * weight / total;
      files.push_back(fmt::format("{} {:.0f} % ({} epochs)", names[source], 100 * weight / total,
                                  format_number(tokens / static_cast<double>(corpus.sources[source].size()))));
    }
    const std::string window =
        stage.attention_window ? fmt::format(", with windows of {}", plural(*stage.attention_window, "position")) : "";
    result.push_back(fmt::format("from step {}: {} of {} a micro-step{}; {}", with_commas(config.data.stages[i].from),
                                 plural(stage.batch_size, "sequence"), plural(stage.block_size, "token"), window,
                                 fmt::join(files, ", ")));
  }
  return result;
}

namespace {

struct Idle {
  bool is_idle;
  const char *key, *why;
};

// Written by a person, that is: a run writes out every key in its own configuration.
bool is_written(const config::Origins& origins, const char* key) {
  const auto found = origins.find(key);
  return found != origins.end() && found->second.find(fmt::format("{}:", kEffectiveConfig)) == std::string::npos;
}

std::vector<Idle> idle_data_settings(const run::Setup& setup, bool resident, const config::Origins& origins) {
  const DataConfig& data = setup.config.data;
  const bool cpu = setup.device.device.is_cpu();
  const bool is_bin = !data.bin.empty() && !is_written(origins, "data.stages");  // which may read texts beside it
  const bool has_workers = data.num_workers.value_or(0) > 0;
  const char *const at_home = "the tokens are resident, and batches are built where they are",
                    *const no_workers = "data.num_workers is 0", *const no_text = "data.bin has token ids";
  return {
      {resident, "data.num_workers", at_home},
      {resident, "data.prefetch_factor", at_home},
      {resident, "data.persistent_workers", at_home},
      {resident, "data.pin_memory", at_home},
      {!resident && cpu, "data.pin_memory", "a CPU needs no page-locked memory"},
      {!resident && !has_workers, "data.prefetch_factor", no_workers},
      {!resident && !has_workers, "data.persistent_workers", no_workers},
      {data.schedule == DataSchedule::grow && is_written(origins, "data.stages"), "data.schedule",
       "data.stages says what the run reads"},
      {is_bin, "data.cache_dir", no_text},
      {is_bin, "data.cache_limit", no_text},
      {is_bin, "data.text_field", no_text},
      {is_bin, "data.document_separator", no_text},
      {is_bin && setup.corpus.has_own_split, "data.validation_fraction", "the bin has its own validation tokens"},
      {data.bin.empty() && !setup.corpus.has_json_lines, "data.text_field", "no file of the text is JSON lines"},
  };
}

std::vector<Idle> idle_settings(const run::Setup& setup) {
  const Config& config = setup.config;
  const Precision& precision = setup.precision;
  const bool cpu = setup.device.device.is_cpu();
  const TrainingConfig& t = config.training;
  const CadenceConfig& cadence = t.cadence;
  const bool compiles = t.execution.use_compile;
  const char *const not_fused = "training.use_compile is false", *const no_samples = "training.sample_interval is 0";
  const char* const no_spikes = "training.on_divergence is off";
  const char *const no_decay = "training.lr_schedule is not wsd", *const no_plateau =
                                                                      "training.lr_schedule is not plateau";
  const bool has_decay = t.schedule.lr_schedule == LrSchedule::wsd,
             has_plateau = t.schedule.lr_schedule == LrSchedule::plateau;
  const char* const no_quantization = "training.quantized_forward is none";
  const char* const no_teacher = "training.distill_from names no teacher";
  const char* const no_rollback = "training.on_divergence is not rollback";
  const char* const no_blocks = "model.attention is full";
  return {
      {!t.quantized.is_on(), "training.quantized_products", no_quantization},
      {!t.quantized.is_on(), "training.quantized_forward_skip", no_quantization},
      {!t.quantized.is_on(), "training.quantized_forward_force", no_quantization},
      {precision.compute_type() == at::kFloat, "training.amp_mode", "the run does not compute in 16 bits"},
      {!precision.end_to_end && t.precision.gradient_dtype == GradientDtype::bfloat16, "training.gradient_dtype",
       "the run does not compute in bfloat16 end to end"},
      {t.optimizer.state_dtype == StateDtype::float32, "training.float32_embedding_state",
       "all of AdamW's state is float32"},
      {!t.optimizer.has_muon(), "training.muon_momentum", "training.optimizer is adamw"},
      {t.optimizer.weight_decay == 0, "training.cautious_weight_decay", "training.weight_decay is 0"},
      {cpu, "training.expandable_segments", "it is for a GPU"},
      {!cpu && has_allocator_variable(), "training.expandable_segments", "PYTORCH_ALLOC_CONF is set"},
      {!compiles, "training.loss_chunk_rows", not_fused},
      {!compiles, "training.compile_mode", not_fused},
      {t.distillation.from.empty(), "training.distill_weight", no_teacher},
      {t.distillation.from.empty(), "training.distill_temperature", no_teacher},
      {!t.distillation.from.empty() && t.distillation.weight == 0, "training.distill_from",
       "training.distill_weight is 0"},
      {t.schedule.lr_schedule == LrSchedule::constant, "training.min_lr", "training.lr_schedule is constant"},
      {!has_decay, "training.decay_fraction", no_decay},
      {!has_decay, "training.decay_shape", no_decay},
      {!has_plateau, "training.plateau_factor", no_plateau},
      {!has_plateau, "training.plateau_patience", no_plateau},
      {!has_plateau, "training.plateau_threshold", no_plateau},
      {!has_plateau, "training.plateau_cooldown", no_plateau},
      {config.model.attention_window == 0, "model.window_pattern", "model.attention_window is 0"},
      {config.model.attention == AttentionForm::full, "model.attention_block", no_blocks},
      {config.model.attention == AttentionForm::full, "model.attention_top_blocks", no_blocks},
      {config.model.position == Position::learned, "model.rope_theta", "model.position is learned"},
      {cadence.sample_interval.count == 0, "training.sample_tokens", no_samples},
      {cadence.sample_interval.count == 0, "training.sample_prompt", no_samples},
      {setup.mesh.data->size() == 1, "distributed.zero", "no other process has the same part of the model"},
      {setup.mesh.data->size() == 1, "distributed.reduce_dtype", "no gradients are sent"},
      {setup.mesh.all->size() == 1, "distributed.timeout", "there is one process"},
      {setup.mesh.all->size() == 1, "distributed.restarts", "there is one process"},
      {setup.mesh.all->size() == 1, "distributed.min_processes", "there is one process"},
      {setup.mesh.all->size() > 1 && config.distributed.restarts == 0, "distributed.min_processes",
       "distributed.restarts is 0"},
      {setup.corpus.validation.size() == 0 && cadence.eval_tasks.empty(), "training.eval_interval",
       "the data has no validation split"},
      {setup.corpus.validation.size() == 0, "training.patience", "the data has no validation split"},
      {cadence.checkpoint_interval.count == 0, "training.keep_last", "training.checkpoint_interval is 0"},
      {cadence.eval_interval.count == 0, "training.patience", "training.eval_interval is 0"},
      {cadence.eval_interval.count == 0, "training.eval_batches", "training.eval_interval is 0"},
      {cadence.eval_interval.count == 0, "training.eval_tasks", "training.eval_interval is 0"},
      {cadence.eval_tasks.empty(), "training.eval_task_limit", "training.eval_tasks names no task"},
      {!cadence.divergence.looks_for_spikes(), "training.spike_window", no_spikes},
      {!cadence.divergence.looks_for_spikes(), "training.spike_threshold", no_spikes},
      {!cadence.divergence.goes_back(), "training.rollback_lr_factor", no_rollback},
      {!cadence.divergence.goes_back(), "training.max_rollbacks", no_rollback},
  };
}

}  // namespace

void announce_idle_settings(const run::Setup& setup, bool resident, const config::Origins& origins) {
  std::vector<Idle> idle = idle_settings(setup), of_data = idle_data_settings(setup, resident, origins);
  idle.insert(idle.end(), of_data.begin(), of_data.end());
  std::erase_if(idle, [&](const Idle& one) { return !one.is_idle || !is_written(origins, one.key); });
  for (size_t begin = 0, end = 0; begin < idle.size(); begin = end) {
    std::vector<const char*> keys;  // for the same reason
    for (; end < idle.size() && std::string_view(idle[end].why) == idle[begin].why; ++end)
      keys.push_back(idle[end].key);
    log::info(fmt::format("No effect here: {} ({})", fmt::join(keys, ", "), idle[begin].why));
  }
}

}  // namespace gpt
