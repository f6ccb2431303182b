// Moments of 8 bits of parameters that tensor parallelism divides, as checkpoints have them: in the blocks of the whole parameter, which are
// not those of a part (ops/moments.h). So they are rounded anew.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "gpt/layout/parameter_table.h"
#include "gpt/optim/optimizer.h"
#include "gpt/parallel/division.h"
#include "gpt/parameters/parameters.h"

namespace gpt::parallel {

bool is_rounded_anew(const layout::ParameterRow& row, const OptimizerConfig& config);

// A tensor of codes or of largest magnitudes.
struct RoundedSize {
  int64_t count;   // of the values of the parameter
  int64_t values;  // that an element stands for, as in OptimizerSlot
};
// The elements that one of so many processes rounds: those of as many blocks as the others.
layout::FlatSpan rounded_by(int64_t process, int64_t processes, const RoundedSize& size);

// What this process has rounded, by the name of the record: "exp_avg/transformer.wte.weight".
using RoundedMoments = std::map<std::string, at::Tensor>;

// All processes call it. The values of one parameter after the other come together in all processes of its stage, in float32 and in the
// host's memory.
RoundedMoments rounded_moments(const optim::Optimizer& optimizer, const parameters::Parameters& parameters,
                               const Division& division);

}  // namespace gpt::parallel
