// In which order a stage of a pipeline computes the micro-batches of an update: 1F1B with the weights of one update, PipeDream-Flush in
// Narayanan et al. (2020), "Memory-Efficient Pipeline-Parallel DNN Training".
#pragma once

#include <cstdint>
#include <vector>

namespace gpt::parallel {

enum class Pass { forward, backward };

struct Turn {
  Pass pass;
  int64_t micro_batch;
  bool operator==(const Turn&) const = default;
};

// Every micro-batch once forward and once backward, each in their order: as many forward passes as there are stages behind this one, then a
// forward and a backward pass in turn, and at the end the backward passes that are left. So at most most_in_flight() are between both.
std::vector<Turn> pipeline_schedule(int64_t stage, int64_t stages, int64_t micro_batches);

int64_t most_in_flight(int64_t stage, int64_t stages, int64_t micro_batches);

// The share of an update for which a stage waits, where all take equally long for a micro-batch.
double bubble(int64_t stages, int64_t micro_batches);

}  // namespace gpt::parallel
