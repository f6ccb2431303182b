// What changes of the architecture do to the loss: `gpt-bench architecture`. Each variant learns from the same batches; the
// validation loss is compared after the same number of tokens and after the same time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/bench/effort.h"
#include "gpt/bench/findings.h"
#include "gpt/bench/learning.h"
#include "gpt/bench/rung.h"

namespace gpt::bench {

struct Variant {
  std::string name;  // as the configuration has it: "mlp: geglu"
  std::optional<Learning> learning;
  std::string verdict;  // or why nothing was learned
};

struct ArchitectureComparison {
  std::vector<Variant> variants;  // the first as configured, the second the same with another seed
  LearningLength length;
  int64_t eval_batches = 0, batch_size = 0;  // batches of an evaluation; sequences in each
  bool complete = false;
};

ArchitectureComparison compare_architectures(const Wanted& wanted, double seconds, const Measure& measure,
                                             const Learn& learn, const Progress& progress);

Findings findings(const ArchitectureComparison& comparison);

}  // namespace gpt::bench
