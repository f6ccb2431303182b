// The stages of a run: which sources each of them mixes, and how its samples are batched. Every run has at least one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/data_config.h"
#include "gpt/config/training_config.h"

namespace gpt::data {

// What a stage mixes: main alone where it does not say. And what a run reads: all that its stages mix, each once, in the
// order of appearance.
std::vector<std::pair<std::string, double>> mix_of(const Stage& stage);
std::vector<std::string> stage_sources(const DataConfig& config);

// A stage as it is batched.
struct StageBatches {
  std::optional<int64_t> batches =
      {};                  // micro-steps; none: epoch after epoch of one source, in a run of this stage alone
  int64_t batch_size = 0;  // sequences per rank and micro-step
  int64_t block_size = 0;
  std::vector<std::pair<size_t, double>> mix = {{0, 1.0}};  // sources and their weights
  std::optional<int64_t> attention_window = {};             // of windowed layers; none: the model's
};

// The stages of a configuration; without any, the one that has no number of batches. A stage of shorter sequences has so
// many more of them in a batch that the tokens of a step stay (nearly, where the lengths do not divide).
std::vector<StageBatches> stage_batches(const DataConfig& data, const TrainingConfig& training, int64_t block_size);

}  // namespace gpt::data
