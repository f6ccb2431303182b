// A save that several processes write between them, between two updates.
#include "gpt/checkpoint/divided_save.h"
#include "gpt/optim/optimizer_state.h"
#include "terms.h"

namespace gpt::plan::terms {
namespace {

// What a process has rounded anew of the moments of matrices in parts of layers (parallel/rounded_moments.h), and of the largest one the
// values of its part and of the whole in float32.
double bytes_of_rounded_moments(const RunPart& run) {
  const ActivationForm& form = run.form;
  if (form.model_parts == 1) return 0;
  const auto parts = static_cast<double>(form.model_parts);
  double values = 0, largest = 0;  // of a part
  for (const layout::ParameterRow& row : run.rows) {
    if (!row.is_trained || optim::state_form(row, run.training.optimizer).dtype != StateDtype::int8) continue;
    values += static_cast<double>(row.count());
    largest = std::max(largest, static_cast<double>(row.count()));
  }
  const double rounded =
      2 * values * parts * static_cast<double>(form.stages) / static_cast<double>(form.checkpoint_parts);
  return rounded + largest * (form.state_share + parts) * ops::kFloatBytes;
}

void add_save(const RunPart& run, MemoryTerms& sum) {
  if (run.form.checkpoint_parts == 1) return;
  const optim::StateBytes state = optim::state_bytes(run.rows, run.layout, run.training.optimizer);
  const double of_save = checkpoint::memory_of_divided_save(static_cast<double>(state.device + state.host)) +
                         bytes_of_rounded_moments(run);
  if (run.form.cuda) {
    sum.use.host += of_save;
  } else {
    sum.at_other_time(of_save);
  }
}

}  // namespace

Term checkpoints() { return {.memory = add_save}; }

}  // namespace gpt::plan::terms
