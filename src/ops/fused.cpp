#include "gpt/ops/fused.h"

#include "gpt/ops/activation.h"
#include "gpt/ops/attention.h"
#include "gpt/ops/classifier.h"
#include "gpt/ops/embedding.h"
#include "gpt/ops/heads.h"
#include "gpt/ops/linear.h"
#include "gpt/ops/norm.h"

namespace gpt::ops {

Operators fused_operators() {
  return {.embedding = embedding,
          .add_norm = add_norm,
          .linear = linear,
          .linear_pair = linear_pair,
          .linear_gelu = linear_gelu,
          .linear_for_backward = linear_for_backward,
          .split_heads = split_heads,
          .attention = attention,
          .activate = activate,
          .activate_gated = activate_gated,
          .classifier_loss = classifier_loss,
          .classifier_losses = classifier_losses};
}

}  // namespace gpt::ops
