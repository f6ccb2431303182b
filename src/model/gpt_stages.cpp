// What a stage of a model (pipeline parallelism) gets from the others, and gives to them.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "gpt/layout/cut.h"
#include "gpt/model/attention_form.h"
#include "gpt/model/gpt.h"
#include "gpt/model/tensor_parallel.h"
#include "gpt/ops/document_starts.h"

namespace gpt::model {

void GPT::copy_from(parameters::NamedTensors values, const parameters::FrozenMatrices& packed) {
  if (part_.stages == 1) return parameters_.copy_from(std::move(values), packed);
  (void)parameters::tensors_of_rows(layout::parameter_table(config_), values, "model");  // of the other stages too
  values = parameters::tensors_named_by(parameters_.rows(), values);
  parameters_.copy_from(std::move(values), packed);
}

bool GPT::divides_rows() const { return part_.size > 1 && at::GradMode::is_enabled(); }

// For a batch of `sizes` (B, T).
ops::SharedOperators GPT::of_pass(const ops::SharedOperators& operators, at::IntArrayRef sizes) const {
  return divides_rows() ? dividing_rows(operators, sizes[0], sizes[1]) : operators;
}

at::Tensor GPT::stage_input(int64_t B, int64_t T) const {
  return divides_rows() ? empty_stream({layout::rows_of_part(B * T, part_), 1, config_.n_embd})
                        : empty_stream({B, T, config_.n_embd});
}

at::Tensor GPT::empty_stream(at::IntArrayRef sizes) const {
  return at::empty(sizes, parameters_[0].compute_value().options().requires_grad(false));
}

at::Tensor GPT::through_stages(const at::Tensor& ids, const at::Tensor& starts) const {
  at::Tensor in = ids;
  if (!part_.is_first_stage()) link_->receive(in = stage_input(ids.size(0), ids.size(1)));
  const at::Tensor x = hidden(in, {.ids = ids, .document_starts = starts});
  if (!part_.is_last_stage()) link_->send(x);
  return x;
}

void GPT::set_document_separator(std::optional<int64_t> token) {
  if (token) require_whole_sequences(config_);
  document_separator_ = token;
}

// Where the documents of a pass begin; undefined where its sequences are one document each.
at::Tensor GPT::document_starts(const at::Tensor& in, const LossOptions& options) const {
  const at::Tensor& ids = options.ids.defined() ? options.ids : in;
  if (const at::Tensor& starts = options.document_starts; starts.defined()) {
    require_whole_sequences(config_);
    TORCH_CHECK(starts.sizes() == ids.sizes().slice(0, 2) && starts.scalar_type() == at::kInt,
                "GPT: document_starts must be int32 in the shape of ids, got ", starts.sizes());
    return starts;
  }
  return document_separator_ ? ops::document_starts(part_.is_first_stage() ? in : options.ids, *document_separator_)
                             : at::Tensor();
}

// What the last stage has found, in all of them; undefined before at the others.
at::Tensor GPT::shared(const at::Tensor& found, at::IntArrayRef sizes) const {
  if (!link_) return found;
  const at::Tensor x = found.defined() ? found.to(at::kFloat).contiguous() : empty_stream(sizes).to(at::kFloat);
  link_->share(x);
  return x;
}

}  // namespace gpt::model
