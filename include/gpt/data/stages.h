// The stages of a run: which files each of them mixes, and how its samples are batched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/data_config.h"
#include "gpt/config/training_config.h"

namespace gpt {

// What a stage mixes: main alone where it does not say. And what all stages mix, each once, in the order of appearance.
std::vector<std::pair<std::string, double>> mix_of(const Stage& stage);
std::vector<std::string> stage_sources(const DataConfig& config);

// A stage as it is batched.
struct StageBatches {
  int64_t batches = 0;  // micro-steps; the last stage goes on beyond
  int64_t batch_size = 0, block_size = 0;
  std::vector<std::pair<size_t, double>> mix;  // sources and their weights
};

// The stages of a configuration, none without any. A stage of shorter sequences has so many more of them in a batch that
// the tokens of a step stay (nearly, where the lengths do not divide).
std::vector<StageBatches> stage_batches(const DataConfig& data, const TrainingConfig& training, int64_t block_size);

}  // namespace gpt
