// The optimizer that a configuration asks for.
#pragma once

#include <memory>
#include <string>

#include "gpt/config/training_config.h"
#include "gpt/optim/optimizer.h"
#include "gpt/parameters/parameters.h"

namespace gpt::optim {

// `spans`: what of the flat buffer it updates; of each of Muon's matrices all or nothing.
std::unique_ptr<Optimizer> make_optimizer(const parameters::Parameters& parameters, const OptimizerConfig& config,
                                          const std::vector<layout::FlatSpan>& spans);
std::string name_of_optimizer(const OptimizerConfig& config);  // for people: "fused AdamW"

}  // namespace gpt::optim
