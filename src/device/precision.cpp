#include "gpt/device/precision.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <exception>
#include <utility>

#include "gpt/config/rules.h"
#include "gpt/core/error.h"
#include "gpt/device/memory.h"

namespace gpt::device {
namespace {

std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::automatic: return "auto";
    case Dtype::float32: return "float32";
    case Dtype::tf32: return "tf32";
    case Dtype::bfloat16: return "bfloat16";
    case Dtype::float16: return "float16";
  }
  return "?";
}

[[noreturn]] void reject(Dtype dtype, const std::string& why) {
  throw Error(ExitCode::config, fmt::format("dtype {} {}", name_of(dtype), why));
}

// What an explanation is about: "the CPU" or the GPU's name and compute capability.
std::string subject(const DeviceInfo& info) {
  if (!info.device.is_cuda()) return "the CPU";
  return fmt::format("{} (compute capability {}.{})", info.name, info.compute_major, info.compute_minor);
}

Dtype choose(const PrecisionConfig& config, const DeviceInfo& info) {
  if (!config.use_amp) return info.tf32 ? Dtype::tf32 : Dtype::float32;
  if (info.bfloat16) return Dtype::bfloat16;
  if (info.device.is_cuda()) return Dtype::float16;
  // amp_mode says how 16 bits are used: someone asked for them.
  return info.slow_bfloat16 && config.amp_mode != AmpMode::automatic ? Dtype::bfloat16 : Dtype::float32;
}

bool is_in_hardware(Dtype dtype, const DeviceInfo& info) {
  switch (dtype) {
    case Dtype::tf32: return info.tf32;
    case Dtype::bfloat16: return info.bfloat16 || info.slow_bfloat16;
    case Dtype::float16: return info.device.is_cuda();
    default: return true;
  }
}

void check_supported(Dtype dtype, const DeviceInfo& info) {
  const bool cuda = info.device.is_cuda();
  if (dtype == Dtype::bfloat16 && cuda && !info.bfloat16) {
    reject(dtype, fmt::format("is not supported by the hardware of {}; choose dtype float16 or auto", subject(info)));
  }
  if (dtype == Dtype::tf32 && !info.tf32) {
    reject(dtype, fmt::format("is not supported by the hardware of {}; choose dtype float32 or auto", subject(info)));
  }
}

std::string explain(const PrecisionConfig& config, const Precision& precision, const DeviceInfo& info) {
  const bool automatic = config.dtype == Dtype::automatic;
  const char *const how = precision.end_to_end ? "end to end" : "autocast", *const alone = config.master_weights
                                                                                               ? ""
                                                                                               : ", weights too";
  switch (precision.dtype) {
    case Dtype::bfloat16:
      if (info.bfloat16) return fmt::format("bfloat16 {}{} ({} has it in hardware)", how, alone, subject(info));
      if (info.slow_bfloat16) return fmt::format("bfloat16 {}{}, although {}", how, alone, bfloat16_obstacle(info));
      return fmt::format("bfloat16 {}{}, emulated: {} and float32 is faster", how, alone, bfloat16_obstacle(info));
    case Dtype::float16:
      if (automatic) return fmt::format("float16 autocast with a gradient scaler ({} has no bfloat16)", subject(info));
      return "float16 autocast with a gradient scaler";
    case Dtype::tf32: return "float32 with TF32 matrix products";
    default:
      if (!automatic) return "float32";
      if (!config.use_amp) return "float32 (use_amp is off)";
      return fmt::format("float32: {}", bfloat16_obstacle(info));
  }
}

}  // namespace

std::string_view name_of(at::ScalarType compute_type) {
  return compute_type == at::kBFloat16 ? "bfloat16" : compute_type == at::kHalf ? "float16" : "float32";
}

std::string bfloat16_obstacle(const DeviceInfo& info) {
  if (info.bfloat16) return "";
  if (info.slow_bfloat16) return fmt::format("{}'s bfloat16 instructions are no faster than float32's", subject(info));
  return fmt::format("{} has no bfloat16 instructions", subject(info));
}

std::string bfloat16_emulation(const DeviceInfo& info) {
  return is_in_hardware(Dtype::bfloat16, info) ? "" : bfloat16_obstacle(info);
}

at::ScalarType Precision::compute_type() const {
  switch (dtype) {
    case Dtype::bfloat16: return at::kBFloat16;
    case Dtype::float16: return at::kHalf;
    default: return at::kFloat;
  }
}

// Without accumulation a gradient of 16 bits is what the product gives; with it, every sum would be rounded. Only the head's is a sum
// all the same: of chunks of rows and, where it is tied, of what the embedding adds.
at::ScalarType gradient_type(const TrainingConfig& training, bool end_to_end) {
  const GradientDtype asked = training.precision.gradient_dtype;
  const bool is_narrow =
      asked == GradientDtype::automatic ? training.gradient_accumulation_steps == 1 : asked == GradientDtype::bfloat16;
  return end_to_end && is_narrow ? at::kBFloat16 : at::kFloat;
}

Precision resolve_precision(const PrecisionConfig& config, const DeviceInfo& info) {
  Precision result;
  result.dtype = config.dtype == Dtype::automatic ? choose(config, info) : config.dtype;
  check_supported(result.dtype, info);
  const bool automatic = config.amp_mode == AmpMode::automatic;
  result.end_to_end = result.dtype == Dtype::bfloat16 &&
                      (automatic ? is_in_hardware(result.dtype, info) : config.amp_mode == AmpMode::end_to_end);
  Config whole;
  whole.training.precision = config;
  config::require_agreement(whole, facts_of(info, result));
  result.grad_scaler = result.dtype == Dtype::float16;
  result.tf32 = info.tf32 && result.dtype != Dtype::float32;  // with 16 bits, for what stays in float32
  result.reason = explain(config, result, info);
  return result;
}

config::Facts facts_of(const DeviceInfo& device, const Precision& precision) {
  return {.is_cpu = device.device.is_cpu(),
          .computes_in_16_bits = precision.compute_type() != at::kFloat,
          .is_end_to_end = precision.end_to_end,
          .allocator_is_set = has_allocator_variable()};
}

void keep_resolved(TrainingConfig& training, const Precision& precision) {
  training.precision.dtype = precision.dtype;
  if (precision.compute_type() == at::kFloat) return;
  training.precision.amp_mode = precision.end_to_end ? AmpMode::end_to_end : AmpMode::autocast;
  if (training.precision.gradient_dtype != GradientDtype::automatic || !precision.end_to_end) return;
  const bool is_narrow = gradient_type(training, precision.end_to_end) == at::kBFloat16;
  training.precision.gradient_dtype = is_narrow ? GradientDtype::bfloat16 : GradientDtype::float32;
}

std::string choose_again_if_missing(PrecisionConfig& kept, const PrecisionConfig& asked, const DeviceInfo& info) {
  if (asked.dtype != Dtype::automatic || is_in_hardware(kept.dtype, info)) return "";
  const Dtype before = std::exchange(kept.dtype, Dtype::automatic);
  return fmt::format("The run computed in {}, which {} does not have: it goes on in {}", name_of(before), subject(info),
                     name_of(choose(kept, info)));
}

void apply_precision(const Precision& precision, bool deterministic) {
  at::Context& context = at::globalContext();
  const auto float32 = precision.tf32 ? at::Float32Precision::TF32 : at::Float32Precision::IEEE;
  for (at::Float32Op op : {at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN}) {
    context.setFloat32Precision(at::Float32Backend::CUDA, op, float32);
  }
  // Sums are float32: the parts of a product whose sum is split among blocks, too, which LibTorch would let cuBLAS round.
  context.setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false);
  context.setAllowFP16ReductionCuBLAS(/*allow_reduced_precision=*/false);
  context.setBenchmarkCuDNN(!deterministic);
  context.setDeterministicCuDNN(deterministic);
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  if (deterministic) {
    context.setDeterministicFillUninitializedMemory(false);  // a debugging aid that costs a pass over each allocation
  }
}

Autocast::Autocast(at::Device device, at::ScalarType type) : device_type_(device.type()), active_(type != at::kFloat) {
  if (!active_) return;
  TORCH_CHECK(type == at::kBFloat16 || type == at::kHalf, "Autocast: a 16-bit type expected, got ", type);
  previous_enabled_ = at::autocast::is_autocast_enabled(device_type_);
  previous_type_ = at::autocast::get_autocast_dtype(device_type_);
  at::autocast::set_autocast_enabled(device_type_, true);
  at::autocast::set_autocast_dtype(device_type_, type);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!active_) return;
  try {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_dtype(device_type_, previous_type_);
    at::autocast::set_autocast_enabled(device_type_, previous_enabled_);
  } catch (const std::exception& e) { TORCH_WARN("autocast was not restored: ", e.what()); }
}

}  // namespace gpt::device
