// The model of a configuration: its size, whether it suits the device, and what it will cost. Nothing is allocated.
// `model.vocab_size` must be set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/model_config.h"
#include "gpt/config/training_config.h"
#include "gpt/diagnose/check.h"
#include "gpt/diagnose/estimates.h"

namespace gpt {

Check check_parameters(const ModelConfig& model);
Check check_vocabulary(const ModelConfig& model, bool cuda);

// `path`: the kernel that LibTorch chooses, as attention_path() names it.
Check check_attention(const ModelConfig& model, bool cuda, const std::string& path);

// Against the memory that is free on the device.
Check check_memory(const ModelConfig& model, const TrainingConfig& training, const ActivationForm& form,
                   double free_bytes);

// `peak_flops`: of the device in the precision of the run, where it is known.
Check check_compute(const ModelConfig& model, const TrainingConfig& training, int64_t total_steps,
                    std::optional<double> peak_flops);

}  // namespace gpt
