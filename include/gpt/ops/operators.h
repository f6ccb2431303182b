// The operators that the model is made of: what they take, and a set of them as an object, so that the model need not know whose they
// are. A set may carry state, such as scales or adapters, and wrap another one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "gpt/config/model_config.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/ops/dropout_spec.h"
#include "gpt/ops/heads.h"
#include "gpt/ops/rotary.h"
#include "gpt/parameters/parameters.h"

namespace gpt::ops {

enum class Activation { silu, gelu, relu2 };  // gelu is the tanh form, relu2 the square of ReLU

// The activation of the MLP's gate, or of its input where it has no gate.
constexpr Activation activation_of(Mlp kind) {
  switch (kind) {
    case Mlp::swiglu: return Activation::silu;
    case Mlp::geglu:
    case Mlp::gelu: return Activation::gelu;
    case Mlp::relu2: break;
  }
  return Activation::relu2;
}

// What a product does with its input, of which the weight's gradient is made.
enum class ProductInput {
  keep,
  repeat,  // compute it anew in the backward pass, where the operator that it comes from can do that
};

// Where in a model an operator is called, for one that does something else there.
struct Site {
  layout::ParameterRole role{};
  int64_t layer = -1;
};

struct Normalization {
  Norm kind;
  double eps;
  parameters::Parameter weight, bias;  // (C); bias may be empty, and of an RMSNorm is
  Site site = {};
  double offset = 0;  // what the weight is added to
};

// Adds scale * (x A^T) B^T to a product, for pieces of its outputs apart, as gpt/layout/parameter_table.h has it.
struct Adapter {
  parameters::Parameter a, b;  // (rank for each piece, K); (outputs of all pieces, rank)
  double scale = 1;
  std::vector<layout::RowCut::Piece> outputs = {};
  DropoutSpec dropout = {};  // of x, before A
  bool defined() const { return a.defined(); }
};

struct LinearLayer {
  parameters::Parameter weight, bias;  // (N, K); (N) or empty
  Site site = {};
  Adapter adapter = {};  // of a frozen weight, or none
};

struct Normalized {
  at::Tensor sum, normed;  // both have the shape of x
};

// Another model, whose distribution over the vocabulary takes a part of the targets' place: Hinton et al. (2015), "Distilling the
// Knowledge in a Neural Network".
struct Distillation {
  at::Tensor
      rows;  // (..., columns) what its head takes, for each row of x, without gradient; undefined: there is no other model
  at::Tensor head;    // (the vocabulary or more, columns), whose further rows take no part
  double weight = 0;  // in [0, 1]: the share of the loss that is the divergence from it
  double temperature =
      1;  // above 0: what the logits of both are divided by in the divergence, which is multiplied by its square
};

// The target of a row that is not learned from: its loss is 0 and counts in the mean, and it has no gradients.
inline constexpr int64_t kMaskedTarget = -1;

struct ClassifierOptions {
  int64_t vocabulary;          // the head's further rows are padding and take no part
  double label_smoothing = 0;  // in [0, 1): this share of each target is spread over the whole vocabulary
  // At most so many rows at once; 0: as many as fill 8 MB on a CPU, or on a GPU at most 600 MB, but at least 256.
  int64_t chunk_rows = 0;
  Distillation teacher = {};
};

// Which dropouts draw from the device's default generator (gpt/ops/dropout_spec.h).
struct Draws {
  bool attention, others;
};

// Each as the function of the same name in gpt/ops describes it.
class Operators {
 public:
  virtual ~Operators() = default;

  // starts: where the document of each id begins (gpt/ops/document_starts.h); undefined: where the sequence does.
  virtual at::Tensor embedding(const at::Tensor& ids, const parameters::Parameter& table,
                               const parameters::Parameter& positions, const at::Tensor& starts,
                               const DropoutSpec& dropout) const = 0;
  virtual Normalized add_norm(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                              const DropoutSpec& dropout) const = 0;
  virtual at::Tensor linear(const at::Tensor& x, const LinearLayer& layer, ProductInput input) const = 0;
  virtual std::pair<at::Tensor, at::Tensor> linear_pair(const at::Tensor& x, const LinearLayer& first,
                                                        const LinearLayer& second, ProductInput input) const = 0;
  // Names its parts (gpt/ops/part.h) itself.
  virtual at::Tensor linear_activated(Activation activation, const at::Tensor& x, const LinearLayer& layer,
                                      ProductInput input) const = 0;
  virtual at::Tensor linear_for_backward(const at::Tensor& x, const LinearLayer& layer) const = 0;
  virtual Heads split_heads(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) const = 0;
  virtual at::Tensor attention(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) const = 0;
  virtual at::Tensor activate(Activation activation, const at::Tensor& x) const = 0;
  virtual at::Tensor activate_gated(Activation activation, const at::Tensor& gate, const at::Tensor& in,
                                    const DropoutSpec& dropout) const = 0;
  virtual at::Tensor classifier_loss(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                                     const ClassifierOptions& options, const at::Tensor& upstream) const = 0;
  virtual at::Tensor classifier_losses(const at::Tensor& x, const parameters::Parameter& head,
                                       const at::Tensor& targets, const ClassifierOptions& options) const = 0;

  // On a device, in a model of so many columns.
  virtual Draws draws(at::Device device, int64_t n_embd) const = 0;

  // The parameters have other values than before: what was made of them, if anything, is not to be used again.
  virtual void values_changed() const {}

  // The set that computes the same by LibTorch's operators, which this one is compared with.
  virtual std::shared_ptr<const Operators> reference() const;
};

using SharedOperators = std::shared_ptr<const Operators>;

// Another set of operators, of which those that are overridden do something else.
class WrappedOperators : public Operators {
 public:
  explicit WrappedOperators(SharedOperators inner) : inner_(std::move(inner)) {}

  at::Tensor embedding(const at::Tensor& ids, const parameters::Parameter& table,
                       const parameters::Parameter& positions, const at::Tensor& starts,
                       const DropoutSpec& dropout) const override {
    return inner_->embedding(ids, table, positions, starts, dropout);
  }
  Normalized add_norm(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                      const DropoutSpec& dropout) const override {
    return inner_->add_norm(norm, x, branch, dropout);
  }
  at::Tensor linear(const at::Tensor& x, const LinearLayer& layer, ProductInput input) const override {
    return inner_->linear(x, layer, input);
  }
  std::pair<at::Tensor, at::Tensor> linear_pair(const at::Tensor& x, const LinearLayer& first,
                                                const LinearLayer& second, ProductInput input) const override {
    return inner_->linear_pair(x, first, second, input);
  }
  at::Tensor linear_activated(Activation activation, const at::Tensor& x, const LinearLayer& layer,
                              ProductInput input) const override {
    return inner_->linear_activated(activation, x, layer, input);
  }
  at::Tensor linear_for_backward(const at::Tensor& x, const LinearLayer& layer) const override {
    return inner_->linear_for_backward(x, layer);
  }
  Heads split_heads(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) const override {
    return inner_->split_heads(std::move(qkv), spec, rotary);
  }
  at::Tensor attention(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary) const override {
    return inner_->attention(std::move(qkv), spec, rotary);
  }
  at::Tensor activate(Activation activation, const at::Tensor& x) const override {
    return inner_->activate(activation, x);
  }
  at::Tensor activate_gated(Activation activation, const at::Tensor& gate, const at::Tensor& in,
                            const DropoutSpec& dropout) const override {
    return inner_->activate_gated(activation, gate, in, dropout);
  }
  at::Tensor classifier_loss(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                             const ClassifierOptions& options, const at::Tensor& upstream) const override {
    return inner_->classifier_loss(x, head, targets, options, upstream);
  }
  at::Tensor classifier_losses(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                               const ClassifierOptions& options) const override {
    return inner_->classifier_losses(x, head, targets, options);
  }
  Draws draws(at::Device device, int64_t n_embd) const override { return inner_->draws(device, n_embd); }
  void values_changed() const override { inner_->values_changed(); }

 protected:
  const SharedOperators inner_;
};

}  // namespace gpt::ops
