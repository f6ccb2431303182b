// The norm of an update's gradients, of which each process has those that it updates.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "gpt/model/gpt.h"
#include "gpt/parallel/division.h"
#include "gpt/parameters/parameters.h"

namespace gpt::parallel {

class GradientNorm {
 public:
  // `of_model`: the rows of the whole model, with all stages.
  GradientNorm(const model::GPT& model, const std::vector<layout::ParameterRow>& of_model, Division division);

  // The norm of the sum of the gradients, once that is there: a float32 scalar on the device. Where processes divide the state, and between
  // stages, they exchange norms of blocks, with which `loss` travels: that of each, a float32 scalar too, becomes the sum of all. Where the
  // model is divided, what several processes have counts once.
  at::Tensor of_sum(const at::Tensor& loss) const;

 private:
  at::Tensor block_norms(const at::Tensor& loss) const;
  at::Tensor norm_of_parts(const at::Tensor& block_norms) const;
  at::Tensor norms_of_stages(const at::Tensor& block_norms, const at::Tensor& loss) const;

  parameters::Parameters parameters_;
  Division division_;
  std::vector<layout::FlatSpan> spans_;  // of this process
  at::Tensor is_cut_;  // bool, for each block of the flat buffer; undefined where layers are not divided
  layout::FlatSpan
      of_stage_;  // the flat buffer of this stage within that of the whole model, which ends at whole_size_
  int64_t whole_size_;
};

}  // namespace gpt::parallel
