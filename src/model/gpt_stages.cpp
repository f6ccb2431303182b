// What a stage of a model (pipeline parallelism) gets from the others, and gives to them.
#include <ATen/ops/empty.h>

#include "gpt/model/gpt.h"

namespace gpt {

void GPT::copy_from(const NamedTensors& values) {
  if (part_.stages == 1) return parameters_.copy_from(values);
  (void)tensors_of_rows(parameter_table(config_), values, "model");  // of the other stages too
  parameters_.copy_from(tensors_named_by(parameters_.rows(), values));
}

at::Tensor GPT::stage_input(at::IntArrayRef sizes) const {
  return at::empty(sizes, parameters_[0].compute_value().options().requires_grad(false));
}

at::Tensor GPT::through_stages(const at::Tensor& ids) const {
  at::Tensor in = ids;
  if (!part_.is_first_stage()) link_->receive(in = stage_input({ids.size(0), ids.size(1), config_.n_embd}));
  const at::Tensor x = hidden(in, {.ids = ids});
  if (!part_.is_last_stage()) link_->send(x);
  return x;
}

// What the last stage has found, in all of them; undefined before at the others.
at::Tensor GPT::shared(const at::Tensor& found, at::IntArrayRef sizes) const {
  if (!link_) return found;
  const at::Tensor x = found.defined() ? found.to(at::kFloat).contiguous() : stage_input(sizes).to(at::kFloat);
  link_->share(x);
  return x;
}

}  // namespace gpt
