// What holds the memory of a run's tensors at their peak.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gpt {

struct MemoryUse {
  double weights = 0, gradients = 0, optimizer = 0;  // bytes; weights with their 16-bit copies
  double data = 0;                                   // tokens on the device
  double activations = 0;                            // kept from the forward pass for the backward pass
  double workspace = 0;                              // the rest: what a pass needs while it runs

  double total() const;
  std::vector<std::pair<std::string, double>> parts() const;  // under their names, in this order
};

// "98.1 MB: weights 3.48 MB, gradients 3.48 MB, ..."; parts of nothing are left out.
std::string to_text(const MemoryUse& use);

}  // namespace gpt
