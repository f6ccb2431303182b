// Adapters: the weights that they go with, where these are kept in few bits, with what a product unpacks of them, and dropout.
#include "gpt/parameters/frozen_matrix.h"
#include "terms.h"

namespace gpt::plan::terms {
namespace {

// The head is unpacked as a whole, for all chunks of rows.
void add_narrow_base(const RunPart& run, MemoryTerms& sum) {
  const double of_value = bytes_of(run.form.compute_type);
  for (const layout::ParameterRow& row : run.rows) {
    if (!row.is_narrow()) continue;
    sum.use.weights += static_cast<double>(parameters::frozen_bytes(row));
    if (row.kept == BaseType::bfloat16 && run.form.compute_type == at::kBFloat16) continue;  // it is not unpacked
    const double unpacked = static_cast<double>(row.count()) * of_value;
    if (row.role == layout::ParameterRole::head || !row.tied_name.empty()) {
      sum.head += unpacked;
    } else if (!layout::is_vocabulary(row.role)) {
      sum.at_product(unpacked);
    }
  }
}

// In the backward pass the gradient of what went in, before and after the mask.
void add_dropout(const RunPart& run, MemoryTerms& sum) {
  if (run.training.tuning.lora.dropout == 0) return;
  const ModelConfig& model = run.model;
  const auto widest = static_cast<double>(std::max({model.hidden(), model.attention_width(), model.n_embd}));
  sum.at_product(2 * run.tokens * widest * bytes_of(run.form.compute_type));
}

void add_adapters(const RunPart& run, MemoryTerms& sum) {
  if (!run.training.tuning.lora.is_on()) return;
  add_narrow_base(run, sum);
  add_dropout(run, sum);
}

}  // namespace

Term adapters() { return {.memory = add_adapters}; }

}  // namespace gpt::plan::terms
