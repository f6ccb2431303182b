// What lies before and behind the blocks: the batch and the embedding; the head and the loss, in chunks of rows, whose logits become their
// gradient.
#include "gpt/layout/tuning.h"
#include "gpt/ops/part.h"
#include "terms.h"

namespace gpt::plan::terms {
namespace {

using ops::kFloatBytes;

// Where the vocabulary is divided, LibTorch's operators make the softmax, in float32: the logits, and their exponentials.
double divided_logits(const ActivationForm& form) {
  if (form.model_parts == 1) return 0;
  return (form.compute_type == at::kFloat ? 1 : 2) * kFloatBytes;
}

// The gradient of x is there already, and x itself.
double bytes_of_head(const RunPart& run) {
  const ActivationForm& form = run.form;
  const double rows = run.bytes.head_rows(run.training), Vp = static_cast<double>(run.model.padded_vocab());
  if (!form.own_operators)
    return run.tokens * 3 * kFloatBytes * Vp;  // log-softmax, and the gradients of it and of the logits
  // From the second chunk on, a 16-bit product is converted as it is added.
  const bool converts = run.is_narrow && !form.cuda && rows < run.tokens && run.gradient == at::kFloat;
  return rows * Vp * (bytes_of(form.compute_type) + divided_logits(form)) + run.tokens * 2 * run.bytes.residual() +
         (converts ? kFloatBytes * Vp * static_cast<double>(run.model.n_embd) : 0);
}

void add_ends(const RunPart& run, MemoryTerms& sum) {
  const bool is_last = run.part.is_last_stage();
  if (is_last || (run.part.is_first_stage() && run.layers > 0))
    sum.use.activations += run.tokens * run.in_flight * run.bytes.outside_blocks();
  if (!is_last) return;
  const int64_t Vp = run.model.padded_vocab();
  const double of_chunk =
      run.form.own_operators ? run.bytes.head_rows(run.training) * static_cast<double>(Vp) * run.unrounded() : 0;
  sum.head += bytes_of_head(run) + std::max(run.of_weight(Vp), of_chunk);
  sum.logits += run.bytes.logits(run.training);
}

void add_passes_of_ends(const StepOperators& step, StepWork& sum) {
  const OperatorWork& of = step.of;
  sum.add(ops::part::kData, step.micro_steps * of.batch());
  sum.add(ops::part::kEmbedding,
          step.micro_steps *
              (layout::first_trained_layer(step.rows) < 0 ? of.embedding().both() : of.embedding().forward));
  sum.add(ops::part::kHead, step.micro_steps * of.head().both());
}

}  // namespace

Term ends() { return {.memory = add_ends, .work = add_passes_of_ends}; }

}  // namespace gpt::plan::terms
