// The loss of a vocabulary that the processes of a group have divided: the logits stay where they are, and four numbers for each token
// go to all.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/layout/cut.h"
#include "gpt/ops/operators.h"
#include "gpt/parameters/parameters.h"
#include "tensor_sums.h"

namespace gpt::model {

struct DividedVocabulary {
  TensorGroup group;
  int64_t padded = 0;  // rows of the whole table

  layout::FlatSpan rows() const { return layout::vocabulary_rows(padded, {group->rank(), group->size()}); }
  int64_t most_rows() const { return (padded + group->size() - 1) / group->size(); }
};

// As ops::classifier_loss() and ops::classifier_losses(), with this process's rows of the head. The loss is the same in all processes; the
// gradient of x is this one's part of it, which remains to be summed.
at::Tensor vocabulary_loss(const DividedVocabulary& vocabulary, const at::Tensor& x, const parameters::Parameter& head,
                           const at::Tensor& targets, const ops::ClassifierOptions& options,
                           const at::Tensor& upstream);
at::Tensor vocabulary_losses(const DividedVocabulary& vocabulary, const at::Tensor& x,
                             const parameters::Parameter& head, const at::Tensor& targets,
                             const ops::ClassifierOptions& options);

}  // namespace gpt::model
