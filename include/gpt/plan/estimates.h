// What a run will need, computed from its configuration before any of it is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/config.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/plan/activation_form.h"
#include "gpt/report/memory_use.h"

namespace gpt::plan {

ActivationForm activation_form(const ModelConfig& model, const TrainingConfig& training,
                               const DistributedConfig& distributed, const device::DeviceInfo& device,
                               const device::Precision& precision);
// The same where `attention` is the kernel's name and nothing on the device is asked: it need not be here.
ActivationForm activation_form(const ModelConfig& model, const TrainingConfig& training,
                               const DistributedConfig& distributed, const device::DeviceInfo& device,
                               const device::Precision& precision, const std::string& attention);

// What tensors take at the peak of a step, without the tokens. Of stages, in the process that needs most. For each parameter, weights take 4 bytes, and 2 more for copies of 16
// bits, or these alone; gradients 4 or 2; AdamW's two moments 8, or with fewer bits 4 or 2. The workspace is what the head takes
// besides its logits, or the backward pass of one block where that is more. `model.vocab_size` must be set.
report::MemoryUse estimate_memory(const ModelConfig& model, const TrainingConfig& training, const ActivationForm& form);

// The largest batch_size whose estimate is within `bytes`; nothing when not even one sequence is.
std::optional<int64_t> largest_batch_size(const ModelConfig& model, TrainingConfig training, const ActivationForm& form,
                                          double bytes);

}  // namespace gpt::plan
