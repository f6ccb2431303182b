// Another model that a run learns from: its weights, and a forward pass before that of the run's own model.
#include "gpt/run/teacher.h"

#include <optional>

#include "gpt/model/recompute.h"
#include "gpt/ops/part.h"
#include "terms.h"

namespace gpt::plan::terms {
namespace {

void add_teacher(const RunPart& run, MemoryTerms& sum) {
  const std::optional<ModelConfig> teacher = run::teacher_in(run.model, run.training);
  if (!teacher) return;
  const layout::FlatLayout layout =
      layout::flat_layout(layout::parameter_table(*run.training.distillation.teacher));  // of all its positions
  const ActivationForm& form = run.form;
  const double of_compute_value = bytes_of(form.compute_type);
  sum.use.teacher += static_cast<double>(layout.size) * (form.end_to_end ? of_compute_value : ops::kFloatBytes);
  const ActivationBytes bytes(*teacher, form);
  // In the last product of a block there are the stream and the branch that came in, their sum, what attention and MLP read and gave, and
  // the sum between them.
  constexpr double kStreams = 8;
  sum.at_other_time(run.tokens * (kStreams * bytes.residual() + bytes.widest()));
  if (!run.part.is_last_stage()) return;
  // What its head takes, whose logits exist beside those of the model that learns. Under autocast both are cast, and so is the head. With
  // LibTorch's operators: the logits in both types, and the distributions of both models with their gradients.
  constexpr double kOfAten = 6;
  const auto C = static_cast<double>(teacher->n_embd), Vp = static_cast<double>(teacher->padded_vocab());
  const bool is_cast = run.is_narrow && !form.end_to_end;
  sum.head +=
      run.tokens * bytes.residual() + (is_cast ? of_compute_value * C * (run.tokens + Vp) : 0) +
      run.bytes.head_rows(run.training) * Vp * (form.own_operators ? of_compute_value : kOfAten * ops::kFloatBytes);
}

void add_its_passes(const StepOperators& step, StepWork& sum) {
  const std::optional<ModelConfig> teacher = run::teacher_in(step.model, step.training);
  if (!teacher) return;
  const OperatorWork of(*teacher, step.types, step.tokens);
  const auto layers = static_cast<double>(teacher->n_layer);
  Work products, attention;
  for (const layout::ParameterRow& row : layout::parameter_table(*teacher))
    if (model::times_multiplied(row, GradientCheckpointing::none) > 0)
      products = products + of.product(row.shape[1], row.shape[0]).forward;
  for (int64_t layer = 0; layer < teacher->n_layer; ++layer)
    attention = attention + of.attention(teacher->visible_share(layer)).forward;
  const Work norms = of.norm(/*has_branch=*/false).forward + layers * of.norms_of_block().forward;
  sum.add(ops::part::kEmbedding, step.micro_steps * of.embedding().forward);
  sum.add(ops::part::kNorm, step.micro_steps * norms);
  sum.add(ops::part::kProducts, step.micro_steps * products);
  sum.add(ops::part::kAttention, step.micro_steps * attention);
  sum.add(ops::part::kActivation, step.micro_steps * (layers * of.activation().forward));
  sum.add(ops::part::kHead, step.micro_steps * of.head().forward);
}

void add_its_passes_on_card(const CardStep& step, CardTerms& sum) {
  sum.flops_per_token += run::teacher_flops_per_token(step.model, step.training);
}

}  // namespace

Term teacher() { return {.memory = add_teacher, .work = add_its_passes, .card = add_its_passes_on_card}; }

}  // namespace gpt::plan::terms
