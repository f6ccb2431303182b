// The operators that the model is made of: what they take, and a set of them, so that the model need not know whose they are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "gpt/config/model_config.h"
#include "gpt/ops/heads.h"
#include "gpt/ops/rotary.h"
#include "gpt/parameters/parameters.h"

namespace gpt::ops {

enum class Activation { silu, gelu };  // gelu is the tanh form

struct Normalization {
  Norm kind;
  double eps;
  Parameter weight, bias;  // (C); bias may be empty, and of an RMSNorm is
};

// What a product does with its input, of which the weight's gradient is made.
enum class ProductInput {
  keep,
  repeat,  // compute it anew in the backward pass, where the operator that it comes from can do that
};

struct LinearLayer {
  Parameter weight, bias;  // (N, K); (N) or empty
};

struct Normalized {
  at::Tensor sum, normed;  // both have the shape of x
};

struct ClassifierOptions {
  int64_t vocabulary;          // the head's further rows are padding and take no part
  double label_smoothing = 0;  // in [0, 1): this share of each target is spread over the whole vocabulary
  // At most so many rows at once; 0: as many as fill 8 MB on a CPU, or on a GPU at most 600 MB, but at least 256.
  int64_t chunk_rows = 0;
};

// Each as the function of the same name in gpt/ops describes it.
//
// dropout: the probability, in [0, 1), with which an element is set to zero; the others are scaled up. Our kernels round it to a
// multiple of 2^-16, and draw the mask from one number of the device's default generator, in the backward pass anew.
struct Operators {
  at::Tensor (*embedding)(const at::Tensor& ids, const Parameter& table, const Parameter& positions, int64_t offset,
                          double dropout);
  Normalized (*add_norm)(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch, double dropout);
  at::Tensor (*linear)(const at::Tensor& x, const Parameter& weight, const Parameter& bias, ProductInput input);
  std::pair<at::Tensor, at::Tensor> (*linear_pair)(const at::Tensor& x, const LinearLayer& first,
                                                   const LinearLayer& second, ProductInput input);
  // Names its parts (gpt/ops/part.h) itself.
  at::Tensor (*linear_gelu)(const at::Tensor& x, const Parameter& weight, const Parameter& bias, ProductInput input);
  at::Tensor (*linear_for_backward)(const at::Tensor& x, const Parameter& weight, const Parameter& bias);
  Heads (*split_heads)(at::Tensor qkv, int64_t n_head, int64_t n_kv_head, const RotaryTables& rotary);
  at::Tensor (*attention)(at::Tensor qkv, int64_t n_head, int64_t n_kv_head, double dropout,
                          const RotaryTables& rotary);
  at::Tensor (*activate)(Activation activation, const at::Tensor& x);
  at::Tensor (*activate_gated)(Activation activation, const at::Tensor& gate, const at::Tensor& in, double dropout);
  at::Tensor (*classifier_loss)(const at::Tensor& x, const Parameter& head, const at::Tensor& targets,
                                const ClassifierOptions& options, const at::Tensor& upstream);
  at::Tensor (*classifier_losses)(const at::Tensor& x, const Parameter& head, const at::Tensor& targets,
                                  const ClassifierOptions& options);
};

}  // namespace gpt::ops
