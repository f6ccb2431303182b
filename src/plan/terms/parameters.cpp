// Weights and gradients, where data-parallel processes do not divide them.
#include "terms.h"

namespace gpt::plan::terms {

Term parameters() {
  return {.memory = [](const RunPart& run, MemoryTerms& sum) {
    const PrecisionConfig& precision = run.training.precision;
    const auto trained = static_cast<double>(run.layout.trained_size), all = static_cast<double>(run.layout.size);
    const bool has_copies = run.is_narrow && precision.master_weights;
    const double kept = bytes_of(device::kept_weight_type(precision)), copy = has_copies ? 2 : 0;
    // What is frozen has copies alone, where there are any.
    if (run.form.weight_parts == 1)
      sum.use.weights += trained * (kept + copy) + (all - trained) * (has_copies ? copy : kept);
    if (run.form.gradient_parts == 1) sum.use.gradients += trained * bytes_of(run.gradient);
  }};
}

}  // namespace gpt::plan::terms
