// Which number formats a run computes in: what `use_amp`, `dtype`, `amp_mode`, `master_weights` and `gradient_dtype`
// mean on a device, and the autocast scope.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "gpt/config/facts.h"
#include "gpt/config/training_config.h"
#include "gpt/device/device.h"

namespace gpt::device {

struct Precision {
  Dtype dtype = Dtype::float32;  // never automatic
  // How 16 bits are used. Autocast has them in products, attention and activations, around a float32 residual stream. End to end
  // everything between embedding and loss has them, and products read 16-bit copies of the float32 weights.
  bool end_to_end = false;
  bool grad_scaler = false;  // float16 only
  bool tf32 = false;
  std::string reason;  // one line for the log: what was chosen and why

  // The types of products, of autocast, and of the copies that the model is made with: kFloat, kBFloat16 or kHalf; kFloat means none.
  at::ScalarType compute_type() const;
  at::ScalarType autocast_type() const { return end_to_end ? at::kFloat : compute_type(); }
  at::ScalarType weight_type() const { return end_to_end ? compute_type() : at::kFloat; }
};

// "float32", "bfloat16" or "float16", as the configuration writes it.
std::string_view name_of(at::ScalarType compute_type);

// Why the device does not compute in bfloat16 unless it is told to: "the CPU has no bfloat16 instructions"; empty where it does.
std::string bfloat16_obstacle(const DeviceInfo& info);
// Why it would emulate bfloat16 if it is told to; empty where it has instructions for it, however slow.
std::string bfloat16_emulation(const DeviceInfo& info);

// The type in which the weights of a run are kept, in memory and in a checkpoint: float32, or without a master bfloat16.
inline at::ScalarType kept_weight_type(const PrecisionConfig& config) {
  return config.master_weights ? at::kFloat : at::kBFloat16;
}

// The type in which the gradients of a run are kept: float32, or bfloat16 in one that is `end_to_end`.
at::ScalarType gradient_type(const TrainingConfig& training, bool end_to_end);

// Throws gpt::Error(config): tf32 or bfloat16 where the device does not have it, and what the rules say of precision (config/rules.h).
Precision resolve_precision(const PrecisionConfig& config, const DeviceInfo& info);

// What the rules may know of a device and of what it computes in.
config::Facts facts_of(const DeviceInfo& device, const Precision& precision);

// Writes what was chosen for `auto` into a configuration that is saved with the run, so that it goes on as it began.
void keep_resolved(TrainingConfig& training, const Precision& precision);

// A run whose dtype was left to the program (`asked`) goes on in the one that it has `kept`, where the device has that. Elsewhere it is
// chosen again, and the result is a line that says what changes. Otherwise that is empty.
std::string choose_again_if_missing(PrecisionConfig& kept, const PrecisionConfig& asked, const DeviceInfo& info);

// Sets TF32, cuDNN benchmark and determinism for the process. Call once, before the first step.
void apply_precision(const Precision& precision, bool deterministic);

// Autocast to `type` on `device` within a scope, weight casts cached until it ends; no-op for kFloat.
class Autocast {
 public:
  Autocast(at::Device device, at::ScalarType type);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_type_;
  bool active_;
  bool previous_enabled_ = false;
  at::ScalarType previous_type_ = at::kFloat;
};

}  // namespace gpt::device
