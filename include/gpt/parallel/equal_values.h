// Values that several processes have alike, and that become equal where each has drawn, read or rounded its own.
#pragma once

#include "gpt/distributed/communicator.h"
#include "gpt/model/gpt.h"
#include "gpt/parameters/parameters.h"

namespace gpt::parallel {

// The token embedding where a tied head makes the first stage and the last one both have it; elsewhere empty. The second one is empty
// where it is not trained, too.
parameters::Parameter table_of_both_ends(const parameters::Parameters& parameters,
                                         const distributed::Pipeline& pipeline);
parameters::Parameter trained_table_of_both_ends(const parameters::Parameters& parameters,
                                                 const distributed::Pipeline& pipeline);

// The values of that table become those that the first stage has. Where they are divided, what each process keeps of them, which both stages
// divide alike; they must come together after that.
void make_table_equal(const parameters::Parameters& parameters, const distributed::Pipeline& pipeline);

// Before the first update: what processors may have drawn with other roundings becomes that of the first process that has it.
void make_equal(const model::GPT& model, const distributed::Mesh& mesh);

}  // namespace gpt::parallel
