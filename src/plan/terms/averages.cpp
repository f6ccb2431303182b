// Averages of the weights. Their memory is the optimizer's, of which they are a slot.
#include "gpt/layout/tuning.h"
#include "gpt/ops/part.h"
#include "terms.h"

namespace gpt::plan::terms {
namespace {

// The weights are read, the averages read and written.
void add_averaging(const StepOperators& step, StepWork& sum) {
  if (!step.training.optimizer.has_averages()) return;
  const double bytes = bytes_of(device::kept_weight_type(step.training.precision)) + 2.0 * ops::kFloatBytes;
  sum.add(ops::part::kOptimizer, {0, static_cast<double>(layout::trained_count(step.rows)) * bytes});
}

}  // namespace

Term averages() { return {.work = add_averaging}; }

}  // namespace gpt::plan::terms
