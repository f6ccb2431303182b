// A recorded step, whose graphs keep memory that evaluations cannot use.
#include "terms.h"

namespace gpt::plan::terms {

Term recording() {
  // An evaluation keeps nothing: a part of a block at a time, or a chunk of logits.
  return {.memory = [](const RunPart& run, MemoryTerms& sum) {
    if (!run.form.is_recorded) return;
    sum.use.workspace += std::max(run.tokens * (2 * run.bytes.residual() + run.bytes.widest()),
                                  run.tokens * run.bytes.residual() + run.bytes.logits(run.training));
  }};
}

}  // namespace gpt::plan::terms
