// How fast a step could be at best: the least that each of its parts has to compute and to move, over what this machine reaches where
// nothing else holds it up, in a large product and in a large copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/config/training_config.h"
#include "gpt/device/precision.h"

namespace gpt::plan {

// Floating-point operations, and the bytes of all operands and results, each read or written once.
struct Work {
  double flops = 0, bytes = 0;
};
inline Work operator+(const Work& a, const Work& b) { return {a.flops + b.flops, a.bytes + b.bytes}; }
inline Work operator*(double times, const Work& work) { return {times * work.flops, times * work.bytes}; }

struct MachineSpeed {
  double flops = 0;             // a second, of a large product
  double bytes_per_second = 0;  // read and written by a large copy

  // Computing and moving go on at the same time: the longer of the two counts.
  double least_seconds(const Work& work) const;
  // The faster of each, because another program can slow a measurement down but not speed it up.
  void keep_faster(const MachineSpeed& other);
  bool is_known() const { return flops > 0; }
};

// For products in `type`. Takes about half a second; draws from no random state.
MachineSpeed measure_machine(at::Device device, at::ScalarType type);
// Measures and keeps the faster. Where measuring fails, as without memory for it, a line says so and the speeds stay as they are.
void measure_again(MachineSpeed& speed, at::Device device, at::ScalarType type);

// What "of the limit" means in a table, with the speeds.
std::string explain_limit(const MachineSpeed& speed);

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

struct PartWork {
  std::string name;  // one of part::kAll
  Work work;
};

// Of a step with so many tokens, in the order of part::kAll.
std::vector<PartWork> work_of_step(const ModelConfig& model, const TrainingConfig& training, const Precision& precision,
                                   double tokens);

// One part after the other.
double least_seconds(const std::vector<PartWork>& parts, const MachineSpeed& speed);

}  // namespace gpt::plan
