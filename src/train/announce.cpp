#include "gpt/train/announce.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "gpt/config/output_folder.h"
#include "gpt/config/rules.h"
#include "gpt/core/format.h"
#include "gpt/core/host_name.h"
#include "gpt/core/log.h"
#include "gpt/data/document_mask.h"
#include "gpt/data/packed_rows.h"
#include "gpt/data/stages.h"
#include "gpt/exchange/hugging_face.h"
#include "gpt/layout/tuning.h"
#include "gpt/model/compile.h"
#include "gpt/optim/lr_schedule.h"
#include "gpt/optim/make_optimizer.h"
#include "gpt/optim/weight_decay_schedule.h"
#include "gpt/parameters/frozen_matrix.h"
#include "gpt/plan/model_checks.h"

namespace gpt::train {

std::string to_text(const device::DeviceInfo& device) {
  const double gigabytes = device.memory_bytes / 1e9;
  if (device.device.is_cuda()) {
    return fmt::format("{}, {:.1f} GB (compute capability {}.{})", device.name, gigabytes, device.compute_major,
                       device.compute_minor);
  }
  return fmt::format("{}, {}, {:.1f} GB", device.name, plural(at::get_num_threads(), "thread"), gigabytes);
}

void announce_device(const device::DeviceInfo& device, const device::DeviceChoice& choice, bool has_gpu) {
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

void warn_of_random_weights(const Config& config, const char* key) {
  if (!config.training.init_from.empty()) return;
  log::warn(fmt::format(
      "{} keeps weights that were drawn at random, because the run does not begin with those of another model; "
      "name one with training.init_from",
      key));
}

// ", beside weights of 134.5M parameters in int4 (90 MB)", or nothing.
std::string described_base(BaseType type, const std::vector<layout::ParameterRow>& rows) {
  if (type == BaseType::automatic) return "";
  double bytes = 0, parameters = 0;
  for (const layout::ParameterRow& row : rows) {
    if (!row.is_narrow()) continue;
    bytes += static_cast<double>(parameters::frozen_bytes(row)), parameters += static_cast<double>(row.count());
  }
  const char* const name = type == BaseType::bfloat16 ? "bfloat16" : type == BaseType::int8 ? "int8" : "int4";
  return fmt::format(", beside {} in {} ({})", format_count(parameters), name, format_bytes(bytes));
}

void announce_adapters(const Config& config, const std::vector<layout::ParameterRow>& rows) {
  const LoraConfig& lora = config.training.tuning.lora;
  if (!lora.is_on()) return;
  const auto trained = static_cast<double>(layout::trained_count(rows)),
             all = static_cast<double>(layout::parameter_count(rows));
  const std::string also = lora.also_train.empty() ? "" : fmt::format(", and {}", fmt::join(lora.also_train, ", "));
  log::success(
      fmt::format("LoRA: adapters of rank {} ({}), times {:.3g}{}: {} parameters are trained, {:.2g} % of {}{}",
                  lora.rank, fmt::join(lora.targets, ", "), lora.scale(), also, format_count(trained),
                  100 * trained / all, format_count(all), described_base(lora.base, rows)));
  warn_of_random_weights(config, "training.lora_rank");
}

void announce_frozen(const Config& config, const std::vector<layout::ParameterRow>& rows) {
  if (config.training.tuning.freeze.empty()) return;
  const int64_t first = layout::first_trained_layer(rows);
  const std::string end = first < 0 ? ""
                                    : fmt::format("; the backward pass ends {} {}",
                                                  first < config.model.n_layer ? "at block" : "after block",
                                                  std::min(first, config.model.n_layer - 1));
  log::success(
      fmt::format("Frozen ({}): {} of {} parameters stay as they are{}", fmt::join(config.training.tuning.freeze, ", "),
                  format_count(static_cast<double>(layout::parameter_count(rows) - layout::trained_count(rows))),
                  format_count(static_cast<double>(layout::parameter_count(rows))), end));
  warn_of_random_weights(config, "training.freeze");
}

// How so many processes divide the model, as the end of a line: "; each has a stage of the model".
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

// How conversations lie in the sequences of a batch.
void announce_rows(const data::PackedRows& rows, int64_t length) {
  const double full = static_cast<double>(rows.positions()) / static_cast<double>(rows.size() * length);
  std::string line = fmt::format("Conversations: {} in {} of {}, {:.0f} % full", with_commas(rows.conversations()),
                                 plural(rows.size(), "sequence"), plural(length, "token"), 100 * full);
  if (rows.cut() > 0) line += fmt::format("; {} longer than that and cut", with_commas(rows.cut()));
  if (rows.left_out() > 0) line += fmt::format("; {} left out, whose answers come later", with_commas(rows.left_out()));
  log::info(line);
}

}  // namespace

void announce_methods(const run::Setup& setup) {
  const Config& config = setup.config;
  const device::DeviceInfo& device = setup.device;
  const device::Precision& precision = setup.precision;
  if (!setup.dtype_change.empty()) log::warn(setup.dtype_change);
  log::info("Precision: " + precision.reason);
  if (precision.tf32) log::success("Enabled TF32");
  if (precision.grad_scaler) log::success("GradScaler on the device");
  log::success(fmt::format("Using {}", optim::name_of_optimizer(config.training.optimizer)));
  const int64_t processes = setup.mesh.all->size();
  if (const std::string muon =
          plan::describe_muon(config.model, config.training, processes,
                              config.distributed.zero > 0 ? processes : setup.mesh.pipeline.stages->size());
      !muon.empty())
    log::info(muon);
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(config.model, config.training.tuning);
  const optim::StateBytes state = optim::state_bytes(rows, layout::flat_layout(rows), config.training.optimizer);
  if (state.host > 0) {
    log::success(fmt::format("Optimizer offload: {} of {} of the optimizer's state is in the memory of the host",
                             format_bytes(static_cast<double>(state.host)),
                             format_bytes(static_cast<double>(state.host + state.device))));
  }
  announce_frozen(config, rows);
  announce_adapters(config, rows);
  const std::string path = model::attention_path(config.model, config.training.execution, device.device,
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
  if (device.is_cuda() && device::gpu_count() > ranks.local_size) {
    log::info(fmt::format("Using {} of {} GPUs; distributed.processes: auto uses all", ranks.local_size,
                          device::gpu_count()));
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
  const Config& config = run.setup().config;
  const data::Corpus& corpus = run.setup().corpus;
  const run::Plan& plan = run.plan();
  const ModelConfig& m = config.model;
  const std::string padded = m.padded_vocab() > *m.vocab_size ? fmt::format(" (padded to {})", m.padded_vocab()) : "";
  const std::string sparse = plan::describe_sparse_attention(m);
  log::info(fmt::format("Model: {} parameters, {}, {}, width {}, block {}, vocabulary {}{}{}",
                        format_count(static_cast<double>(layout::parameter_count(config.model))),
                        plural(m.n_layer, "layer"), plural(m.heads(), "head"), m.n_embd, m.block_size, *m.vocab_size,
                        padded, sparse.empty() ? "" : ", " + sparse));
  if (const std::string idle = plan::idle_attention(config.model_in_stages()); !idle.empty()) log::warn(idle);
  if (const std::string limits = exchange::export_limits(m); !limits.empty()) log::warn(limits);
  log::info(fmt::format("Data: {}: {} training and {} validation tokens, {}", corpus.source,
                        with_commas(corpus.train.size()), with_commas(corpus.validation.size()),
                        run.state().loader.resident() ? "resident" : "streamed"));
  if (const data::PackedRows* rows = run.state().loader.packed_rows(); rows && config.data.stages.empty())
    announce_rows(*rows, config.sequence_length());
  if (const auto separator = data::document_separator(config.data, corpus)) {
    const auto [description, idle] = data::find_documents(corpus, *separator);
    idle.empty() ? log::info("Documents: " + description) : log::warn(idle);
  }
  if (run.teacher()) log::info(run::describe_teacher(*run.teacher(), config.training.distillation));
  const TrainingConfig& t = config.training;
  const int64_t sequences = t.batch_size * t.gradient_accumulation_steps;
  const std::string length =
      config.sequence_length() < m.block_size ? fmt::format(" of {}", plural(config.sequence_length(), "token")) : "";
  const std::string epochs =
      config.data.stages.empty()
          ? fmt::format("{} an epoch, {} {}", plural(plan.steps_per_epoch, "step"), format_number(plan.epochs()),
                        plan.total_steps == plan.steps_per_epoch ? "epoch" : "epochs")
          : "in " + plural(std::ssize(config.data.stages), "stage");
  log::info(fmt::format("Run: {} ({}), {}{} = {} a step, warm-up {}", plural(plan.total_steps, "step"), epochs,
                        plural(sequences, "sequence"), length, plural(sequences * config.sequence_length(), "token"),
                        plural(optim::warmup_steps(run.schedule(), run.schedule_steps()), "step")));
  log::info("Learning rate: " + optim::describe_schedule(run.schedule(), run.schedule_steps()));
  if (t.optimizer.decay_schedule != DecaySchedule::constant)
    log::info("Weight decay: " + optim::describe_weight_decay(t.optimizer));
  for (const std::string& stage : describe_stages(config.data, config, corpus)) log::info("Stage " + stage);
}

std::vector<std::string> describe_stages(const DataConfig& data, const UpdateConfig& update,
                                         const data::Corpus& corpus) {
  if (data.stages.empty()) return {};
  const std::vector<std::string> names = data::stage_sources(data);
  const std::vector<data::StageBatches> stages = data::stage_batches(data, update.training, update.sequence_length());
  std::vector<std::string> result;
  for (size_t i = 0; i < stages.size(); ++i) {
    const data::StageBatches& stage = stages[i];
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
    result.push_back(fmt::format("from step {}: {} of {} a micro-step{}; {}", with_commas(data.stages[i].from),
                                 plural(stage.batch_size, "sequence"), plural(stage.block_size, "token"), window,
                                 fmt::join(files, ", ")));
  }
  return result;
}

namespace {

// Written by a person, that is: a run writes out every key in its own configuration.
bool is_written(const config::Origins& origins, const std::string& key) {
  const auto found = origins.find(key);
  return found != origins.end() && found->second.find(fmt::format("{}:", kEffectiveConfig)) == std::string::npos;
}

}  // namespace

void announce_idle_settings(const run::Setup& setup, bool resident, const config::Origins& origins) {
  Config config = setup.config;
  if (!is_written(origins, "data.stages")) config.data.stages.clear();  // which follow from data.schedule
  config::Facts facts = run::facts_of(setup);
  facts.is_resident = resident;
  for (config::IdleKeys& idle : config::find_idle(config, facts)) {
    std::erase_if(idle.keys, [&](const std::string& key) { return !is_written(origins, key); });
    if (!idle.keys.empty()) log::info(fmt::format("No effect here: {} ({})", fmt::join(idle.keys, ", "), idle.why));
  }
}

}  // namespace gpt::train
