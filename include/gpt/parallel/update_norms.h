// The 2-norms of an update, layer by layer, of which each process has those of what it updates. Two passes around the optimizer's own leave
// sums of squares on the device; nothing is read, and no process waits for another, until somebody asks for the norms.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "gpt/layout/parameter_table.h"
#include "gpt/parallel/division.h"
#include "gpt/parameters/parameters.h"
#include "gpt/report/layer_norms.h"

namespace gpt::parallel {

class UpdateNorms {
 public:
  // `layers`: blocks of the whole model.
  UpdateNorms(parameters::Parameters parameters, int64_t layers, Division division);

  // Once the gradients have been summed: they are measured, and a float32 copy is made of the weights that this process updates. `scale`: that
  // of the gradients in memory, a float32 scalar on the device; undefined: 1.
  void before_update(const at::Tensor& scale);
  void after_update();  // the copy is gone then

  // Norms of the last update that was measured, the same in all processes, which all call it. sync: reads the device
  report::LayerNorms read() const;

 private:
  // The place of each block of kParameterAlignment values of a span among the sums: its layer, or one behind all, where another process counts it.
  at::Tensor places_of(layout::FlatSpan span) const;
  void add_squares(int64_t kind, size_t span, const at::Tensor& values);

  const parameters::Parameters parameters_;
  const Division division_;
  const int64_t layers_;  // with the embeddings and what follows the blocks
  const std::vector<layout::FlatSpan> spans_;
  std::vector<at::Tensor> places_;  // for each span: (blocks) int64
  std::vector<at::Tensor> before_;  // for each span, between the two calls: its weights
  at::Tensor squares_;              // (3, layers_ + 1) float64 sums: in the order of kLayerNormFields
};

}  // namespace gpt::parallel
