// How much each neuron, head and layer of a model does, measured while it reads a text.
//
// A neuron, and each column of a head, is weighed by what it adds to the residual stream: the mean of its absolute activation times the
// norm of the column of the output product that it meets. A layer is weighed by how much it turns the stream: 1 - the mean cosine between
// what goes in and what comes out. In the way of Minitron (Muralidharan et al., 2024) and ShortGPT (Men et al., 2024).
#pragma once

#include <cstdint>
#include <vector>

#include "gpt/batches/data_loader.h"
#include "gpt/model/gpt.h"

namespace gpt::prune {

struct Importance {
  std::vector<std::vector<double>> neurons, heads;  // of each layer
  std::vector<double> layers;
};

struct Measured {
  Importance importance;
  double loss;  // mean cross entropy of the same pass, in nats
};

// `sequences`: (N, T) on the CPU, T at most block_size. What is behind the last target of a sequence that counts is padding. Throws
// gpt::Error(numerics) where the loss is not finite.
Measured measure_importance(model::GPT& model, const batches::Batch& sequences);

double mean_loss(const model::GPT& model, const batches::Batch& sequences);

// Everything by chance, to compare with.
Importance random_importance(const ModelConfig& model, uint64_t seed);

}  // namespace gpt::prune
