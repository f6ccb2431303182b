// What a loss of the model may be computed with, beside ids and targets.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "gpt/ops/operators.h"

namespace gpt::model {

struct LossOptions {
  double label_smoothing = 0;      // mixes in the uniform distribution over the V real tokens; 0 to validate
  int64_t chunk_rows = 0;          // rows of the logits that exist at a time; 0: chosen, see ops/classifier.h
  ops::Distillation teacher = {};  // whose rows are those of the ids
  // What backward() of the loss will be given, a float32 scalar on the device: our classifier computes its gradients together
  // with the loss. Not needed without gradients.
  at::Tensor upstream = {};
  // In training mode: what dropout masks follow from, as ops::DropoutSpec has it. Undefined: the same masks in every call.
  at::Tensor dropout_place = {};
  std::optional<int64_t> attention_window = {};  // of windowed layers, instead of the model's
  // What the first stage took, (B, T), for a stage that takes what another one gives. Only needed where sequences hold several documents,
  // or processes divide the layers.
  at::Tensor ids = {};
  // (B, T) int32, where batches say it: where the document of each position begins. Attention stays within it, and learned positions begin
  // anew with it. Undefined: as set_document_separator() has it.
  at::Tensor document_starts = {};
  // Called in the backward pass, with our own operators: the gradients of this layer, and of all that come after it, are complete, but
  // for a tied head's. The first one is n_layer, which stands for what follows the blocks. Nothing: nobody is told.
  std::function<void(int64_t layer)> layer_done = {};
};

}  // namespace gpt::model
