// Which operators compute a model: what training.use_compile, compile_mode and attention mean on a device.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "gpt/config/model_config.h"
#include "gpt/config/training_config.h"
#include "gpt/device/precision.h"
#include "gpt/model/gpt.h"
#include "gpt/ops/operators.h"

namespace gpt::model {

// The operators that `execution` asks for. Also sets which kernels ATen's attention may use, for the process. Throws gpt::Error(config) for
// an attention kernel that `device` does not have.
ops::SharedOperators select_operators(const ExecutionConfig& execution, at::Device device);

// The attention kernel that this model is trained with: "flash", "cudnn", "efficient" or "math: why". On a CPU "flash" is our own
// with use_compile, and otherwise ATen's. Throws gpt::Error(config) when it is not the one that `execution` asks for. Changes
// nothing: select_operators() decides what the process computes with.
std::string attention_path(const ModelConfig& model, const ExecutionConfig& execution, at::Device device,
                           at::ScalarType dtype, bool training);

// Throws gpt::Error(config) for windows on a GPU whose flash attention cannot compute them; `why` goes on after "which".
[[noreturn]] void refuse_windows(const ModelConfig& model, AttentionKernel asked, const std::string& why);

// Why compile_mode reduce-overhead cannot record the steps of this configuration as CUDA graphs; empty where it can.
std::string recording_obstacle(const TrainingConfig& training, const ModelConfig& model, at::Device device);

// Why compile_mode max-autotune cannot choose how products are computed by measuring them; empty where it can.
std::string tuning_obstacle(const TrainingConfig& training, at::Device device);

// What compile_mode is here.
struct EffectiveMode {
  CompileMode mode = CompileMode::standard;
  bool records = false, tunes = false;  // steps are recorded as graphs; products are chosen by measuring them
  std::string difference = {};  // from what was asked for: "is default on a CPU, which has no graphs"; empty: none
};
EffectiveMode effective_mode(const TrainingConfig& training, const ModelConfig& model, at::Device device);
const char* name_of(CompileMode mode);  // as the configuration writes it

// Tries the model's operators on one short sequence before a run depends on them: where loss or gradient are not those of ATen's
// operators, the model goes on with these. Logs what happened and returns whether the model computes with its own operators; does
// nothing without use_compile. Leaves weights and random state as they were, and no gradients. `is_told`: also that all is well.
bool compile_model(GPT& model, const TrainingConfig& training, const device::Precision& precision, bool is_told = true);

}  // namespace gpt::model
