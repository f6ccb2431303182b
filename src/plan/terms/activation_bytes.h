// What passes keep and need, in bytes. Letters as in model/gpt.h; `s` is the size of a compute value.
#pragma once

#include <algorithm>

#include "gpt/config/model_config.h"
#include "gpt/config/training_config.h"
#include "gpt/ops/activation.h"
#include "gpt/ops/attention.h"
#include "gpt/ops/classifier.h"
#include "gpt/ops/norm.h"
#include "gpt/plan/activation_form.h"

namespace gpt::plan::terms {

// Per token, unless they say otherwise.
class ActivationBytes {
 public:
  ActivationBytes(const ModelConfig& model, const ActivationForm& form)
      : model_(model),
        form_(form),
        s_(static_cast<double>(c10::elementSize(form.compute_type))),
        kept_{.own = form.own_operators,
              .cuda = form.cuda,
              .value_size = s_,
              .sum_size = form.end_to_end ? s_ : ops::kFloatBytes},
        C_(static_cast<double>(model.n_embd)),
        parts_(static_cast<double>(form.model_parts)) {}

  double residual() const { return kept_.sum_size * C_; }  // the stream, once per addition
  double own_rows() const { return residual() / parts_; }  // of it, where processes divide its rows
  // What a block keeps from its forward pass to its backward pass.
  double kept(GradientCheckpointing level) const {
    switch (level) {
      case GradientCheckpointing::block: return own_rows();
      case GradientCheckpointing::selective:
        return norm(/*keeps_output=*/!form_.own_operators) + wide_qk() + attention();
      default: break;
    }
    const bool repeats = form_.own_operators;  // only then the two lower levels save anything
    return in_norms(!repeats || level < GradientCheckpointing::norm) + out_norms() + wide_qk() + attention() +
           branch_dropouts() + mlp(!repeats || level < GradientCheckpointing::activation);
  }
  // What is there besides while its backward pass runs.
  double recomputed(GradientCheckpointing level) const {
    if (level == GradientCheckpointing::block) return kept(GradientCheckpointing::none) - own_rows();
    return level == GradientCheckpointing::selective ? norm() + out_norms() + branch_dropouts() + mlp() : 0;
  }
  // Buffers of one block's backward pass on top of what its forward pass kept: the gradients of its widest part. What the MLP
  // kept is freed by the time attention is reached.
  double backward(GradientCheckpointing level) const {
    return std::max(mlp_backward(level), attention_backward() - mlp() - norm()) + 2 * residual();
  }
  // After the embedding, whose mask our own operator draws again; before the head.
  double outside_blocks() const { return dropout() + norm(); }
  // The part of a block that has most, where nothing is kept.
  double widest() const { return std::max(attention(), mlp()); }

  // How many rows of logits exist at once.
  double head_rows(const TrainingConfig& training) const {
    const int64_t tokens = training.batch_size * model_.block_size;
    if (!form_.own_operators) return static_cast<double>(tokens);
    return static_cast<double>(ops::classifier_chunk_rows(tokens, {model_.padded_vocab(), model_.n_embd},
                                                          form_.compute_type, training.execution.loss_chunk_rows,
                                                          form_.cuda ? form_.multiprocessors : 0));
  }
  // All of these.
  double logits(const TrainingConfig& training) const {
    const double size = form_.own_operators ? s_ : ops::kFloatBytes;
    return head_rows(training) * static_cast<double>(model_.padded_vocab()) * size;
  }

 private:
  // Norms of what attention and the MLP take. Where they take the stream itself, its sum is there once.
  double in_norms(bool keeps_output) const {
    return 2 * (model_.norm_place == NormPlace::output ? residual() / parts_ : norm(keeps_output));
  }
  // Norms of what attention and the MLP give: it is kept as the norm takes it, and what comes out is only added.
  double out_norms() const {
    if (model_.norm_place == NormPlace::input) return 0;
    return 2 * s_ * C_ / parts_ * (form_.own_operators ? 1 : 2);
  }
  // Queries and keys that are normalized across all heads: as the product gives them, besides what attention keeps.
  double wide_qk() const {
    if (model_.qk_norm != QkNorm::all) return 0;
    const auto columns = static_cast<double>(model_.attention_width() + model_.kv_heads() * model_.head_dim());
    return columns * s_ * (form_.own_operators ? 1 : 2);
  }
  // What a normalization gives is there for all rows.
  double norm(bool keeps_output = true) const {
    const double of_rows = ops::norm_kept_bytes(kept_, model_.norm, model_.n_embd, /*keeps_output=*/false);
    return of_rows / parts_ + (keeps_output ? s_ * C_ : 0);
  }

  double dropout() const { return ops::dropout_kept_bytes(kept_, model_.dropout, model_.n_embd); }
  double branch_dropouts() const { return dropout() * (model_.is_gated() ? 1 : 2); }

  double attention() const {
    ops::AttentionSpec spec;
    spec.heads = model_.heads(), spec.kv_heads = model_.kv_heads();
    spec.dropout.probability = model_.dropout;
    spec.blocks = {model_.attention_block, model_.top_blocks()};
    return ops::attention_kept_bytes(kept_, spec, model_.head_dim(), model_.block_size, form_.fused_attention,
                                     model_.position == Position::rope, model_.qk_norm == QkNorm::heads);
  }

  // The gradient of the output and that of the packed product, which ATen puts together from three where cuDNN does not write it.
  double attention_backward() const {
    const auto A = static_cast<double>(model_.attention_width()),
               kv = static_cast<double>(model_.kv_heads() * model_.head_dim()),
               matrix = static_cast<double>(model_.heads() *
                                            model_.block_size);  // for each head and each position looked at
    const double packed = s_ * (A + 2 * kv);
    if (!form_.fused_attention) return ops::kFloatBytes * (2 * matrix + 3 * A);
    return form_.own_operators && !form_.cuda ? packed + s_ * A : 2 * packed;
  }

  double mlp(bool keeps_product = true) const {
    if (!model_.is_gated()) return ops::activation_kept_bytes(kept_, model_.hidden(), keeps_product);
    return ops::gated_activation_kept_bytes(kept_, model_.hidden(), model_.dropout, keeps_product);
  }
  // The gradients of the product's input and of what it is computed from; a product that was kept is free by then.
  double mlp_backward(GradientCheckpointing level) const {
    const bool keeps_product =
        !form_.own_operators || level < GradientCheckpointing::activation || level >= GradientCheckpointing::selective;
    const bool doubles =
        !form_.own_operators && model_.mlp == Mlp::relu2;  // LibTorch's square has twice what it squares
    const int at_once = (model_.is_gated() ? 3 : 2) - (keeps_product ? 1 : 0) + (doubles ? 1 : 0);
    return at_once * s_ * static_cast<double>(model_.hidden());
  }

  const ModelConfig& model_;
  const ActivationForm& form_;
  double s_;
  ops::KeptForm kept_;
  double C_, parts_;
};

}  // namespace gpt::plan::terms
