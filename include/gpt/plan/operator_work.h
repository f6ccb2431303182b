// The least that each operator of a model has to compute and to move.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gpt/config/model_config.h"

namespace gpt::plan {

inline double bytes_of(at::ScalarType type) { return static_cast<double>(c10::elementSize(type)); }

// Floating-point operations, and the bytes of all operands and results, each read or written once.
struct Work {
  double flops = 0, bytes = 0;
};
inline Work operator+(const Work& a, const Work& b) { return {a.flops + b.flops, a.bytes + b.bytes}; }
inline Work operator*(double times, const Work& work) { return {times * work.flops, times * work.bytes}; }

// What the operators of a model do with so many tokens.
class OperatorWork {
 public:
  struct Types {
    at::ScalarType products;  // what products, attention and activations read
    at::ScalarType stream;    // of embedding, residual stream and normalizations
    at::ScalarType gradient;  // of the weights
  };
  struct Passes {
    Work forward, backward;
    Work both() const { return forward + backward; }
  };

  // `model.vocab_size` must be set.
  OperatorWork(const ModelConfig& model, const Types& types, double tokens);

  Work batch() const;  // where the tokens are on the device
  Passes embedding() const;
  Passes norm(bool has_branch) const;  // `has_branch`: something is added to the residual stream first
  // The norms of a block: of sums, of what is added to them, and of queries and keys of all heads.
  Passes norms_of_block() const;
  Passes product(int64_t in, int64_t out) const;
  Passes attention(double share = 1) const;  // of the scores of full causal attention
  Passes activation() const;
  Passes head() const;  // with the loss; logits are not stored

 private:
  ModelConfig model_;
  // Numbers of tokens, and of values in x, in the queries, and in queries, keys and values together.
  double tokens_, width_, attention_, packed_;
  double product_, stream_, gradient_;  // bytes of a value
};

// Bytes of a parameter: as the update reads and writes it, of its 16-bit copy (0: it has none), and of each of its two moments.
struct ParameterBytes {
  double gradient, weight = 4, copy = 0, moment = 4;
};
Work norm_of_gradients(double parameters, const ParameterBytes& bytes);
Work adamw(double parameters, const ParameterBytes& bytes);
Work muon(double parameters, const ParameterBytes& bytes, double flops);  // `flops`: of Newton-Schulz

}  // namespace gpt::plan
