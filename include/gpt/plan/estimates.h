// What a run will need, computed from its configuration before any of it is allocated.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/config.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/report/memory_use.h"

namespace gpt::plan {

// How the activations of a run are kept, and how much of its optimizer's state.
struct ActivationForm {
  at::ScalarType compute_type = at::kFloat;
  bool fused_attention = true;  // flash, cuDNN or efficient: no T x T matrix is kept
  bool cuda = false;
  bool own_operators = true;      // use_compile
  bool rounds_products = false;   // ops::cpu::rounds_products_from_float32()
  bool adds_products = false;     // ops::cpu::adds_bfloat16_products()
  double product_workspace = 0;   // ops::cpu::product_workspace()
  bool is_recorded = false;       // as CUDA graphs, whose temporary memory evaluations cannot use
  int64_t multiprocessors = 132;  // how many the GPU has
  bool end_to_end = false;        // otherwise 16 bits are autocast's, around a float32 residual stream
  double state_share = 1;         // the part of the state that a process has: distributed.zero
  int64_t gradient_parts = 1;     // among how many processes gradients are divided: distributed.zero 2
  int64_t weight_parts = 1;       // and the weights of blocks: distributed.zero 3
  int64_t gradient_lanes = 1;     // of each of them
  int64_t model_parts = 1;        // among how many the model itself is divided: distributed.tensor_parallel
  int64_t stages = 1;             // or its blocks: distributed.pipeline_parallel
  int64_t checkpoint_parts = 1;   // how many processes write a checkpoint between them
  std::optional<int64_t> micro_batches =
      {};  // of an update in each process, which are in flight between stages; nothing: any number
  // In which Muon orthogonalizes: newton_schulz_type().
  at::ScalarType newton_schulz = at::kFloat;
};
ActivationForm activation_form(const ModelConfig& model, const TrainingConfig& training,
                               const DistributedConfig& distributed, const DeviceInfo& device,
                               const Precision& precision);
// The same where `attention` is the kernel's name and nothing on the device is asked: it need not be here.
ActivationForm activation_form(const ModelConfig& model, const TrainingConfig& training,
                               const DistributedConfig& distributed, const DeviceInfo& device,
                               const Precision& precision, const std::string& attention);

// What tensors take at the peak of a step, without the tokens. Of stages, in the process that needs most. For each parameter, weights take 4 bytes, and 2 more for copies of 16
// bits, or these alone; gradients 4 or 2; AdamW's two moments 8, or with fewer bits 4 or 2. The workspace is what the head takes
// besides its logits, or the backward pass of one block where that is more. `model.vocab_size` must be set.
MemoryUse estimate_memory(const ModelConfig& model, const TrainingConfig& training, const ActivationForm& form);

// The largest batch_size whose estimate is within `bytes`; nothing when not even one sequence is.
std::optional<int64_t> largest_batch_size(const ModelConfig& model, TrainingConfig training, const ActivationForm& form,
                                          double bytes);

}  // namespace gpt::plan
