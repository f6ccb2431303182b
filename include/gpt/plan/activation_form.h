// What the estimates of a run's memory and time ask of the device, the precision and the processes, beside the configuration.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

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
  // The type in which Muon orthogonalizes: newton_schulz_type().
  at::ScalarType newton_schulz = at::kFloat;
};

}  // namespace gpt::plan
