// What holds the memory of a run's tensors at their peak, estimated (plan/estimates.h) or measured (run/measured_memory.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gpt::report {

// In bytes, on the device that trains.
struct MemoryUse {
  double weights = 0;      // with their copies of 16 bits
  double gradients = 0;    // kept from step to step
  double optimizer = 0;    // its state, without what is in `host`
  double teacher = 0;      // the weights of training.distill_from
  double data = 0;         // tokens
  double activations = 0;  // kept from the forward pass for the backward pass
  // Logits of a chunk, which become their gradients, where the peak is at the head. Measured ones are a part of `workspace`.
  double logits = 0;
  double workspace = 0;  // the rest: what a pass needs while it runs
  double host = 0;       // what the optimizer has in the memory of a GPU's host, and so not part of the total

  double total() const;
  std::vector<std::pair<std::string, double>> parts() const;  // of the total, under their names, in this order
};

// "98.1 MB: weights 3.48 MB, gradients 3.48 MB, ..."; parts of nothing are left out.
std::string to_text(const MemoryUse& use);

}  // namespace gpt::report
