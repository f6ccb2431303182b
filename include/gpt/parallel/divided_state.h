// An optimizer's state, and weights, that processes have divided among them, as checkpoints describe them.
#pragma once

#include <vector>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/model/gpt.h"
#include "gpt/optim/optimizer.h"
#include "gpt/parallel/division.h"
#include "gpt/parallel/rounded_moments.h"
#include "gpt/parameters/parameters.h"

namespace gpt::parallel {

// Makes checkpoint.optimizer the state of all parameters, whose tensors are on the meta device, and adds to checkpoint.parts which of
// Division::all has what of them; and the model too, where processes have parts of it. The values of this one are views of the memory that
// the optimizer uses, or of `rounded`. `of_model`: the rows of the whole model, with all stages.
void capture_parts(const optim::Optimizer& optimizer, const model::GPT& model,
                   const std::vector<layout::ParameterRow>& of_model, const Division& division,
                   const RoundedMoments& rounded, checkpoint::Checkpoint& checkpoint);

// The type in which the values of a parameter are kept by all processes, which have parameters like these.
at::ScalarType kept_type(const layout::ParameterRow& row, const parameters::Parameters& parameters);

// Ranges of whole tensors: the values whose state this process has; and the values that it keeps.
checkpoint::ValueRanges values_of_own_state(const Division& division, const std::vector<layout::ParameterRow>& rows,
                                            const layout::FlatLayout& layout);
checkpoint::ValueRanges own_values(const Division& division, const std::vector<layout::ParameterRow>& rows,
                                   const layout::FlatLayout& layout);

// What a stage, whose rows these are, has of the state in a checkpoint, which has that of all stages.
optim::OptimizerState state_of_stage(const optim::OptimizerState& saved, const Division& division,
                                     const std::vector<layout::ParameterRow>& rows);

// What of a checkpoint this process needs.
checkpoint::StateNeeds needed_state(const distributed::Mesh& mesh, const DistributedConfig& config);

}  // namespace gpt::parallel
