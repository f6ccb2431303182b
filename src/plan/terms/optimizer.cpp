// The optimizer's state and the update: AdamW, Muon, and what of the state is in the memory of the host.
#include "gpt/layout/tuning.h"
#include "gpt/ops/part.h"
#include "gpt/optim/muon.h"
#include "gpt/optim/optimizer_state.h"
#include "terms.h"

namespace gpt::plan::terms {
namespace {

void add_state(const RunPart& run, MemoryTerms& sum) {
  const optim::StateBytes state = optim::state_bytes(run.rows, run.layout, run.training.optimizer);
  sum.use.optimizer += run.form.state_share * static_cast<double>(state.device);
  sum.use.host += run.form.state_share * static_cast<double>(state.host);
  // With training.log_norms, the weights before an update that is measured (parallel/update_norms.h), which a graph's memory does not hold.
  const double before = run.training.cadence.log_norms
                            ? run.form.state_share * ops::kFloatBytes * static_cast<double>(run.layout.trained_size)
                            : 0;
  if (run.form.is_recorded) sum.use.workspace += before;
  // The update needs no more than the passes before it, unless they are of very few tokens.
  sum.at_other_time(optim::muon_workspace(run.rows, run.training.optimizer, run.form.newton_schulz) +
                    (run.form.is_recorded ? 0 : before));
}

// 8-bit moments have a scale of four bytes for each block of 256.
double bytes_of_moment(StateDtype type) {
  return type == StateDtype::float32 ? 4 : type == StateDtype::bfloat16 ? 2 : 1 + 4.0 / 256;
}

void add_update(const StepOperators& step, StepWork& sum) {
  const at::ScalarType weight = device::kept_weight_type(step.training.precision);
  const ParameterBytes bytes{.gradient = bytes_of(step.types.gradient),
                             .weight = bytes_of(weight),
                             .copy = step.types.stream == weight ? 0 : bytes_of(step.types.stream),
                             .moment = bytes_of_moment(step.training.optimizer.state_dtype)};
  const auto parameters = static_cast<double>(layout::trained_count(step.rows));
  const optim::MuonWork of_muon = optim::muon_work(step.rows, step.training.optimizer);
  const Work update =
      adamw(parameters - of_muon.parameters, bytes) + muon(of_muon.parameters, bytes, of_muon.least_flops);
  sum.add(ops::part::kOptimizer, norm_of_gradients(parameters, bytes) + update);
}

void add_update_on_card(const CardStep& step, CardTerms& sum) {
  // Kernels of Muon for a matrix: three products of each iteration, its two passes, and what lies between them.
  constexpr double kMuonKernels = 22;
  const OptimizerConfig& optimizer = step.training.optimizer;
  const optim::MuonWork muon = optim::muon_work(step.rows, optimizer);
  sum.update_flops += muon.flops;
  sum.update_kernels += kMuonKernels * static_cast<double>(muon.matrices);
  const int64_t offloaded = optim::state_bytes(step.rows, layout::flat_layout(step.rows), optimizer).host;
  sum.moved_by_update += step.form.state_share * static_cast<double>(offloaded);
}

}  // namespace

Term optimizer() { return {.memory = add_state, .work = add_update, .card = add_update_on_card}; }

}  // namespace gpt::plan::terms
