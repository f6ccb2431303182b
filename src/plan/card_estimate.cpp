#include "gpt/plan/card_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpt/core/format.h"
#include "gpt/layout/tuning.h"
#include "gpt/model/attention_form.h"
#include "plan/terms/terms.h"

namespace gpt::plan {
namespace {

// The shares of what data sheets promise that this program's products and its other kernels reach, chosen so that what was measured on
// an H100 and an H200 lies around the estimate (tests/plan/card_estimate_test.cpp). Products of narrow models reach less.
constexpr double kShareOfPeak = 0.62, kShareOfBandwidth = 0.85;
constexpr double kWideEnough = 512;

// How often each byte that is kept for the backward pass, and each of the logits, is read or written by a kernel that is no product;
// chosen in the same way.
constexpr double kOwnPasses = 2.5, kAtenPasses = 10.5;
// Weights: read by three products of a micro-step in the precision of the products, their gradients read and written in float32.
constexpr double kPassesOfWeights = 3, kGradientBytes = 8;
// The update reads and writes all of its state.
constexpr double kPassesOfState = 2;
// What is in the memory of the host crosses the bus, both ways at once: bytes a second each way over 16 lanes of PCIe 4, of whose
// 32 GB/s a copy reaches this.
constexpr double kBusBandwidth = 25e9;

// The host takes this long for each kernel; replayed as part of a graph, the card does.
constexpr double kLaunch = 6e-6, kReplay = 1.5e-6;

}  // namespace

double StepEstimate::total() const {
  return is_recorded ? products + memory + launches : std::max({products + memory, launches, swapping});
}

std::string expected_attention(const ModelConfig& model, const ExecutionConfig& execution,
                               const device::DeviceInfo& card, at::ScalarType type) {
  constexpr int64_t kMultiple = 8, kWidestFlash = 256;
  model::require_attention_on(model, at::kCUDA);
  const bool is_grouped = model.kv_heads() < model.heads();
  const AttentionKernel asked = execution.attention;
  const bool is_flash = type != at::kFloat && card.compute_major >= 8 && model.head_dim() <= kWidestFlash &&
                        model.head_dim() % kMultiple == 0;
  if (model.windowed_layers() > 0 &&
      (!is_flash || (asked != AttentionKernel::automatic && asked != AttentionKernel::flash)))
    model::refuse_windows(model, asked,
                          fmt::format("does not take {} with heads of width {} there", c10::toString(type),
                                      model.head_dim()));
  if (execution.attention == AttentionKernel::math) return "math: training.attention asks for it";
  const int64_t width = model.head_dim();
  if (width % kMultiple != 0) return fmt::format("math: heads of width {} are not a multiple of {}", width, kMultiple);
  if (is_flash) return "flash";
  if (is_grouped) return fmt::format("math: no fused kernel supports grouped heads in {} there", c10::toString(type));
  return "efficient";
}

StepEstimate estimate_step(const ModelConfig& model, const TrainingConfig& training, const ActivationForm& form,
                           const device::Card& card, Dtype dtype) {
  const double micro_steps = static_cast<double>(training.gradient_accumulation_steps),
               tokens = static_cast<double>(training.batch_size * training.sequence_length_for(model)),
               parameters = static_cast<double>(layout::parameter_count(model)),
               bytes = static_cast<double>(c10::elementSize(form.compute_type));
  TrainingConfig keeping = training;
  keeping.execution.gradient_checkpointing = GradientCheckpointing::none, keeping.execution.swap_activations = 0;
  const report::MemoryUse kept = estimate_memory(model, keeping, form), real = estimate_memory(model, training, form);
  terms::CardTerms sum;
  const terms::CardStep step{model, training, form, layout::parameter_table(model, training.tuning), real.host};
  for (const terms::Term& term : terms::all())
    if (term.card) term.card(step, sum);

  StepEstimate estimate;
  const double share = kShareOfPeak * std::min(1.0, static_cast<double>(model.n_embd) / kWideEnough);
  const double peak = card.peak_flops(dtype).value_or(card.float32 * 1e12),
               peak_in_bfloat16 = card.bfloat16 > 0 ? card.bfloat16 * 1e12 : peak;
  estimate.products =
      micro_steps * sum.flops_per_token * tokens / (share * peak) + sum.update_flops / (share * peak_in_bfloat16);
  const double passes = form.own_operators ? kOwnPasses : kAtenPasses,
               activations = sum.repeated * passes * kept.activations,
               logits = passes * tokens * bytes * static_cast<double>(model.padded_vocab()),
               weights = parameters * (kPassesOfWeights * bytes + kGradientBytes),
               state = kPassesOfState * (real.weights + real.gradients + real.optimizer);
  estimate.memory =
      (micro_steps * (activations + logits + weights) + state) / (kShareOfBandwidth * card.bandwidth * 1e9) +
      sum.moved_by_update / kBusBandwidth;
  estimate.swapping = micro_steps * sum.swapped / kBusBandwidth;
  estimate.launches =
      (micro_steps * sum.repeated * sum.kernels + sum.update_kernels) * (form.is_recorded ? kReplay : kLaunch);
  estimate.is_recorded = form.is_recorded;
  return estimate;
}

StepParts estimate_parts(const ModelConfig& model, TrainingConfig training, ActivationForm form,
                         const device::Card& card, Dtype dtype) {
  const auto parts = static_cast<double>(std::exchange(form.model_parts, 1));
  const int64_t few = std::min<int64_t>(2, training.gradient_accumulation_steps);  // one may have smaller gradients
  const auto seconds = [&](int64_t micro_batches) {
    training.gradient_accumulation_steps = micro_batches;
    return estimate_step(model, training, form, card, dtype).total();
  };
  const double micro_batch = seconds(3) - seconds(2), update = seconds(few) - static_cast<double>(few) * micro_batch;
  return {micro_batch / parts, update / parts};
}

std::string describe(const StepEstimate& estimate) {
  return fmt::format(
      "estimated from the data sheet and the shares of it that an H100 and an H200 reached (products {}, memory {}, launching kernels {}{}{})",
      format_short_duration(estimate.products), format_short_duration(estimate.memory),
      format_short_duration(estimate.launches), estimate.is_recorded ? "" : " at the same time",
      estimate.swapping == 0 ? "" : fmt::format(", swapping {} meanwhile", format_short_duration(estimate.swapping)));
}

Check check_card(const device::Card& card, const device::DeviceInfo& device) {
  const double sixteen_bits = std::max(card.bfloat16, card.float16);
  return passed("device", fmt::format("--gpu {}, not this machine: {} for a program, {} GB/s, {} TFLOP/s in {}, {} in "
                                      "float32, compute capability {}.{}",
                                      card.name, format_bytes(static_cast<double>(device.memory_bytes)), card.bandwidth,
                                      sixteen_bits, card.bfloat16 > 0 ? "bfloat16" : "float16", card.float32,
                                      device.compute_major, device.compute_minor));
}

MemoryBudget card_memory(const device::DeviceInfo& card) {
  constexpr double kContext = 0.6e9;  // CUDA's own and the code of its libraries
  return {.available = static_cast<double>(card.memory_bytes), .program = kContext};
}

}  // namespace gpt::plan
