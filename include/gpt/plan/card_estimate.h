// How a run would go on a card that is not here, from its data sheet and the shares of it that were measured on an H100 and an H200.
#pragma once

#include <string>

#include "gpt/config/config.h"
#include "gpt/device/cards.h"
#include "gpt/device/precision.h"
#include "gpt/plan/check.h"
#include "gpt/plan/estimates.h"
#include "gpt/plan/model_checks.h"
#include "gpt/plan/step_schedule.h"

namespace gpt::plan {

// The attention kernel that LibTorch is expected to choose there, as attention_path() would name it.
std::string expected_attention(const ModelConfig& model, const ExecutionConfig& execution,
                               const device::DeviceInfo& card, at::ScalarType type);

// Seconds of one update. The host launches kernels while the card computes, so that the longer of the two counts; those of a graph the
// card launches itself, in between.
struct StepEstimate {
  double products = 0;       // the model's FLOPs, at a share of the card's peak
  double memory = 0;         // what the operators between the products and the update read and write
  double launches = 0;       // launches of kernels
  double swapping = 0;       // activations over the bus and back, meanwhile
  bool is_recorded = false;  // as graphs
  double total() const;
};

// `model.vocab_size` must be set, and `training.batch_size` is the one that batches really have.
StepEstimate estimate_step(const ModelConfig& model, const TrainingConfig& training, const ActivationForm& form,
                           const device::Card& card, Dtype dtype);

// The same step as what a micro-batch of `training` takes, and what the update does. `form` may be that of a part of the model, of which each
// process is taken to compute an even share.
StepParts estimate_parts(const ModelConfig& model, TrainingConfig training, ActivationForm form,
                         const device::Card& card, Dtype dtype);

// The parts of the estimate in words: "estimated from the data sheet, ... (products 310 ms, ...)".
std::string describe(const StepEstimate& estimate);

// `device` has the memory that is asked about.
Check check_card(const device::Card& card, const device::DeviceInfo& device);

// What a program gets there, and what CUDA takes of it.
MemoryBudget card_memory(const device::DeviceInfo& card);

}  // namespace gpt::plan
