#include "gpt/model/compile.h"

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/layout/layer_ends.h"
#include "gpt/model/attention_form.h"
#include "gpt/model/evaluation_mode.h"
#include "gpt/model/operators_in_scope.h"
#include "gpt/model/recompute.h"
#include "gpt/ops/aten_attention.h"
#include "gpt/ops/flat_norm.h"
#include "gpt/ops/heads.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/ops/sdp_backends.h"

namespace gpt::model {
namespace {

const char* name_of(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::cudnn: return "cudnn";
    case AttentionKernel::flash: return "flash";
    case AttentionKernel::efficient: return "efficient";
    case AttentionKernel::math: return "math";
    case AttentionKernel::automatic: break;
  }
  return "auto";
}

// What training.attention allows.
ops::SdpBackends backends_of(AttentionKernel kernel) {
  using enum AttentionKernel;
  const auto has = [kernel](AttentionKernel one) { return kernel == automatic || kernel == one; };
  return {.cudnn = has(cudnn), .flash = has(flash), .efficient = has(efficient), .math = has(math)};
}

void require_kernel(AttentionKernel kernel, at::Device device) {
  if (!device.is_cpu() || (kernel != AttentionKernel::cudnn && kernel != AttentionKernel::efficient)) return;
  throw Error(ExitCode::config,
              fmt::format("'training.attention' is {}, which needs a GPU; use auto, flash or math", name_of(kernel)));
}

std::string cpu_attention_path(const ExecutionConfig& execution, double dropout) {
  if (execution.attention == AttentionKernel::math) return "math: training.attention asks for it";
  const bool is_flash = execution.use_compile || dropout == 0;
  return is_flash ? "flash" : "math: LibTorch's flash attention on a CPU has no dropout";
}

// What ATen chooses among the kernels that are allowed; empty where the one that was asked for cannot be used.
std::string cuda_attention_path(const ModelConfig& config, AttentionKernel asked, at::Device device,
                                at::ScalarType dtype, double dropout, bool training) {
  const int64_t width = (config.heads() + 2 * config.kv_heads()) * config.head_dim();
  const at::Tensor qkv = at::empty({1, config.block_size, width}, at::TensorOptions().device(device).dtype(dtype));
  // Views of one tensor, as the model has them: a kernel may ask for certain strides.
  const ops::Heads heads = ops::split_heads(qkv.requires_grad_(training), {config.heads(), config.kv_heads()});
  try {
    const ops::OnlySdpBackends allowed(backends_of(asked)), exact(ops::exact_for_dropout(dropout));
    const at::SDPBackend choice =
        ops::chosen_sdp_backend(heads.q.transpose(1, 2), heads.k.transpose(1, 2), heads.v.transpose(1, 2), dropout);
    if (training && config.windowed_layers() > 0 && !ops::skips_windows(heads, dropout))
      refuse_windows(config, asked,
                     fmt::format("does not take {} with heads of width {} here", c10::toString(dtype),
                                 config.head_dim()));
    switch (choice) {
      case at::SDPBackend::flash_attention: return "flash";
      case at::SDPBackend::efficient_attention: return "efficient";
      case at::SDPBackend::cudnn_attention: return "cudnn";
      default: break;
    }
  } catch (const c10::Error& error) {
    if (asked == AttentionKernel::automatic || process::is_out_of_memory(error)) throw;
    return "";
  }
  return fmt::format("math: no fused kernel supports {} with heads of width {} here", c10::toString(dtype),
                     config.head_dim());
}

// Within its scope the model computes with these operators. Leaves no gradients, also where one of them throws.
// Nothing is swapped: LibTorch's operators keep weights as tensors over the buffer of all weights, and each block would
// take page-locked memory of that size for the rest of the run.
class TriedOperators {
 public:
  TriedOperators(GPT& model, ops::SharedOperators operators)
      : model_(model), in_use_(model, std::move(operators)), swap_(model.activation_swap()) {
    model_.set_activation_swap(nullptr);
    model_.parameters().clear_gradients();
  }
  ~TriedOperators() {
    model_.parameters().clear_gradients();
    model_.set_activation_swap(swap_);
  }
  TriedOperators(const TriedOperators&) = delete;
  TriedOperators& operator=(const TriedOperators&) = delete;

 private:
  GPT& model_;
  OperatorsInScope in_use_;
  const std::shared_ptr<ActivationSwap> swap_;
};

// The norm of all gradients. Those that are divided are never there all at once.
class GradientNorm {
 public:
  explicit GradientNorm(const parameters::Parameters& parameters)
      : parameters_(parameters), ends_(layout::layer_ends(parameters.rows(), parameters.layout())) {}

  // LibTorch's operators may not be done: then what is left of the layer is taken later.
  void layer_done(int64_t layer) {
    const std::vector<int64_t>& segments = parameters_.segment_ends();
    const int64_t end = ends_[static_cast<size_t>(layer)];
    while (taken_ < segments.size() && segments[taken_] <= end && parameters_.has_gradients(taken_)) take();
  }

  double value() {
    if (parameters_.segment_ends().empty()) return ops::flat_norm(parameters_.flat_gradients()).item<double>();
    while (taken_ < parameters_.segment_ends().size()) take();
    return std::sqrt(squares_);
  }

 private:
  void take() {
    const double norm = ops::flat_norm(parameters_.take_gradients(taken_++)).item<double>();
    squares_ += norm * norm;
  }

  const parameters::Parameters& parameters_;
  std::vector<int64_t> ends_;
  size_t taken_ = 0;  // segments
  double squares_ = 0;
};

struct Outcome {
  double loss, gradient_norm;
};

// An input for a stage whose neighbours do not take part.
at::Tensor made_up_input(const GPT& model, int64_t T) {
  const at::Tensor in = model.stage_input(1, T);
  in.copy_(at::arange(in.numel(), at::TensorOptions(model.device()).dtype(at::kFloat)).sin_().view(in.sizes()));
  return in.requires_grad_();
}

// A stage that is not the last one gives a number of its own instead of a loss.
Outcome try_on(GPT& model, ops::SharedOperators operators, at::ScalarType compute_type) {
  constexpr int64_t kPositions = 64, kStride = 7;
  const int64_t T = std::min(kPositions, model.config().block_size);
  // The first is not token 0, which often pads and then is a row of zeros: norms of those multiply gradients by a thousand in each block.
  const at::Tensor ids = at::arange(1, T + 2, at::TensorOptions(model.device()).dtype(at::kLong))
                             .mul_(kStride)
                             .remainder_(*model.config().vocab_size)
                             .unsqueeze(0);  // (1, T + 1)
  const TriedOperators tried(model, std::move(operators));
  GradientNorm norm(model.parameters());
  const LossOptions options{.label_smoothing = 0.1,
                            .chunk_rows = (T + 1) / 2,  // all its parts
                            .ids = ids.narrow(1, 0, T),
                            .layer_done = [&norm](int64_t layer) { norm.layer_done(layer); }};
  at::Tensor loss;
  {
    const device::Autocast autocast(model.device(), compute_type);
    const at::Tensor in = model.part().is_first_stage() ? options.ids : made_up_input(model, T);
    loss = model.part().is_last_stage() ? model.loss(in, ids.narrow(1, 1, T), options)
                                        : model.hidden(in, options).to(at::kFloat).square().mean();
  }
  if (model.is_passed_backward()) loss.backward();
  return {loss.item<double>(), norm.value()};
}

// What is wrong with `ours`; nothing where both agree within what rounding explains.
std::optional<std::string> disagreement(const Outcome& ours, const Outcome& reference, at::ScalarType compute_type) {
  const double epsilon = compute_type == at::kBFloat16 ? std::ldexp(1, -8)
                         : compute_type == at::kHalf   ? std::ldexp(1, -11)
                                                       : 1e-5;
  // Where there is nothing to learn the gradients are what rounding leaves.
  constexpr double kNothing = 0.01;
  const auto differ = [epsilon](double a, double b, double least) {
    return !(std::abs(a - b) <= 8 * epsilon * std::max(std::abs(b), least));
  };
  if (differ(ours.loss, reference.loss, kNothing)) {
    return fmt::format("the loss is {} where LibTorch's operators give {}", ours.loss, reference.loss);
  }
  if (differ(ours.gradient_norm, reference.gradient_norm, kNothing)) {
    return fmt::format("the gradient's norm is {} where LibTorch's operators give {}", ours.gradient_norm,
                       reference.gradient_norm);
  }
  return std::nullopt;
}

// What is wrong with the model's operators, if anything.
std::optional<std::string> fault(GPT& model, const device::Precision& precision) {
  const at::ScalarType type = precision.autocast_type();
  const EvaluationMode evaluation(model);  // without dropout nothing is drawn
  // cuDNN would plan for a number of positions that no step has. Its first gradients are compared with LibTorch's where they are made.
  const ops::OnlySdpBackends others(ops::without_cudnn());
  try {
    return disagreement(try_on(model, model.operators(), type), try_on(model, model.operators()->reference(), type),
                        precision.compute_type());
  } catch (const c10::Error& error) {
    if (process::is_out_of_memory(error)) throw;  // LibTorch's operators need more of it
    return first_line(error.what());
  }
}

}  // namespace

void refuse_windows(const ModelConfig& model, AttentionKernel asked, const std::string& why) {
  using enum AttentionKernel;
  const bool may_be_flash = asked == automatic || asked == flash;
  throw Error(
      ExitCode::config,
      fmt::format("'model.attention_window' is {}, and on a GPU only flash attention has windows, which {}; set {}, or "
                  "attention_window 0",
                  model.attention_window,
                  may_be_flash ? why : fmt::format("'training.attention' {} excludes", name_of(asked)),
                  may_be_flash ? "training.dtype auto" : "attention auto"));
}

const char* name_of(CompileMode mode) {
  switch (mode) {
    case CompileMode::automatic: return "auto";
    case CompileMode::reduce_overhead: return "reduce-overhead";
    case CompileMode::max_autotune: return "max-autotune";
    case CompileMode::standard: break;
  }
  return "default";
}

ops::SharedOperators select_operators(const ExecutionConfig& execution, at::Device device) {
  const AttentionKernel kernel = execution.attention;
  require_kernel(kernel, device);
  ops::allow_sdp_backends(backends_of(kernel));
  if (!execution.use_compile) return ops::aten_operators();
  return kernel == AttentionKernel::math ? ops::with_aten_attention(ops::fused_operators()) : ops::fused_operators();
}

std::string attention_path(const ModelConfig& model, const ExecutionConfig& execution, at::Device device,
                           at::ScalarType dtype, bool training) {
  const AttentionKernel asked = execution.attention;
  require_attention_on(model, device);
  require_kernel(asked, device);
  const double dropout = training ? model.dropout : 0.0;
  const std::string path = device.is_cpu() ? cpu_attention_path(execution, dropout)
                                           : cuda_attention_path(model, asked, device, dtype, dropout, training);
  if (asked != AttentionKernel::automatic && !path.starts_with(name_of(asked))) {
    throw Error(ExitCode::config, fmt::format("'training.attention' is {}, which cannot be used here{}; use auto",
                                              name_of(asked), path.empty() ? "" : " (" + path + " would be)"));
  }
  return path;
}

std::string recording_obstacle(const TrainingConfig& training, const ModelConfig& model, at::Device device) {
  if (device.is_cpu()) return "on a CPU, which has no graphs";
  if (!training.execution.use_compile) return "without use_compile";
  if (!training.optimizer.fused_adamw) return "with fused_adamw: false, which waits for the device in every update";
  if (training.execution.swap_activations != 0)
    return "with swap_activations, whose copies come and go beside what is computed";
  if (training.quantized.is_on())
    return "with quantized_forward, whose weights are rounded once for several micro-batches";
  const ops::Draws draws = ops::fused_operators()->draws(device, model.n_embd);
  if (recomputing_draws(training.execution.gradient_checkpointing, model, draws))
    return draws.others
               ? "with gradient_checkpointing: selective or block, and dropout in rows of more than 8192 columns, which is LibTorch's"
               : "with gradient_checkpointing: block and dropout, whose random numbers in attention a graph cannot repeat";
  return "";
}

std::string tuning_obstacle(const TrainingConfig& training, at::Device device) {
  if (device.is_cpu()) return "on a CPU, which has one library for each product";
  if (!training.execution.use_compile) return "without use_compile";
  if (training.execution.deterministic)
    return "with deterministic: true, because what is measured differs between runs";
  return "";
}

EffectiveMode effective_mode(const TrainingConfig& training, const ModelConfig& model, at::Device device) {
  using enum CompileMode;
  const CompileMode asked = training.execution.compile_mode;
  const std::string no_graphs = recording_obstacle(training, model, device),
                    no_tuning = tuning_obstacle(training, device);
  if (asked == automatic) {
    const std::string& obstacle = no_graphs.empty() ? no_tuning : no_graphs;
    if (obstacle.empty()) return {.mode = max_autotune, .records = true, .tunes = true};
    const bool is_news = device.is_cuda() && training.execution.use_compile;
    return {.mode = standard, .difference = is_news ? "is default " + obstacle : ""};
  }
  EffectiveMode is{.records = asked != standard && no_graphs.empty(),
                   .tunes = asked == max_autotune && no_tuning.empty()};
  is.mode = is.tunes ? max_autotune : is.records ? reduce_overhead : standard;
  if (is.mode != asked) {
    is.difference = fmt::format("is {} {}", name_of(is.mode), is.records ? no_tuning : no_graphs);
  } else if (is.tunes && !is.records) {
    is.difference = "records no graphs " + no_graphs;
  }
  return is;
}

bool compile_model(GPT& model, const TrainingConfig& training, const device::Precision& precision, bool is_told) {
  const ExecutionConfig& execution = training.execution;
  const EffectiveMode mode = effective_mode(training, model.config(), model.device());
  if (is_told && !mode.difference.empty())
    log::info(fmt::format("compile_mode {} {}", name_of(execution.compile_mode), mode.difference));
  if (!execution.use_compile) return false;
  if (is_told) log::info("Compiling model...");
  const auto begin = std::chrono::steady_clock::now();
  if (const std::optional<std::string> why = fault(model, precision)) {
    model.set_operators(model.operators()->reference());
    log::warn("Failed to compile: " + *why);
    if (execution.gradient_checkpointing == GradientCheckpointing::activation ||
        execution.gradient_checkpointing == GradientCheckpointing::norm)
      log::warn(
          "gradient_checkpointing saves nothing without use_compile's operators, unless it is selective or block");
    log::warn(mode.mode == CompileMode::standard ? "Continuing with uncompiled model"
                                                 : "Continuing with uncompiled model, and without CUDA graphs");
    return false;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (is_told)
    log::success(fmt::format("Model compiled successfully ({}) in {:.2f} s", name_of(mode.mode), seconds.count()));
  return true;
}

}  // namespace gpt::model
