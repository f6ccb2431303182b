// What the processes of a tensor group send to each other, without gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gpt/distributed/communicator.h"
#include "gpt/layout/cut.h"
#include "gpt/parameters/parameters.h"

namespace gpt::model {

using TensorGroup = std::shared_ptr<distributed::Communicator>;

// The sum over the group of y (..., C), with `bias` (C) added once, if it is defined.
at::Tensor sum_over(const TensorGroup& group, const at::Tensor& y, const parameters::Parameter& bias);

// (processes, shape of x): what each has, x being of one shape in all.
at::Tensor gather_from(const TensorGroup& group, const at::Tensor& x);

// The rows of a batch of B sequences of T tokens that this process has, as layout/cut.h deals them out.
struct OwnRows {
  TensorGroup group;
  int64_t B, T;

  int64_t count() const { return layout::rows_of_part(B * T, {.size = group->size()}); }
  int64_t first() const { return group->rank() * count(); }
  // The sum of all processes' y (B, T, C) in these rows: (count, 1, C), zeros where rows are padding.
  at::Tensor sum(const at::Tensor& y) const;
  at::Tensor gather(const at::Tensor& x) const;  // x (count, 1, C) of all processes: (B, T, C)
};

// The gradients of parameters that all processes have whole, and of which each computes those of its rows.
class WholeGradients {
 public:
  explicit WholeGradients(TensorGroup group) : group_(std::move(group)) {}

  // To compute with in place of `whole`, if that is trained: of the same value, with a gradient of its own.
  parameters::Parameter part_of(const parameters::Parameter& whole);
  void add_up() const;  // the sums over the group, to the gradients of those that are whole

 private:
  struct Pair {
    parameters::Parameter whole, part;
  };
  const TensorGroup group_;
  std::vector<Pair> pairs_;
};

}  // namespace gpt::model
