#include "gpt/data/stages.h"

#include <algorithm>

namespace gpt::data {

std::vector<std::pair<std::string, double>> mix_of(const Stage& stage) {
  if (stage.mix.empty()) return {{kMainSource, 1.0}};
  return stage.mix;
}

std::vector<std::string> stage_sources(const DataConfig& config) {
  if (config.stages.empty()) return {kMainSource};
  std::vector<std::string> names;
  for (const Stage& stage : config.stages) {
    for (const auto& [name, weight] : mix_of(stage)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::vector<StageBatches> stage_batches(const DataConfig& data, const TrainingConfig& training, int64_t block_size) {
  if (data.stages.empty()) return {{.batch_size = training.batch_size, .block_size = block_size}};
  const std::vector<std::string> names = stage_sources(data);
  std::vector<StageBatches> result;
  for (size_t i = 0; i < data.stages.size(); ++i) {
    const Stage& stage = data.stages[i];
    const int64_t end =
        i + 1 < data.stages.size() ? data.stages[i + 1].from : training.schedule.max_steps.value_or(kDefaultMaxSteps);
    const int64_t length = stage.block_size.value_or(block_size);
    StageBatches batches{.batches = (end - stage.from) * training.gradient_accumulation_steps,
                         .batch_size = training.batch_size * block_size / length,
                         .block_size = length,
                         .mix = {},
                         .attention_window = stage.attention_window};
    for (const auto& [name, weight] : mix_of(stage)) {
      batches.mix.emplace_back(std::find(names.begin(), names.end(), name) - names.begin(), weight);
    }
    result.push_back(std::move(batches));
  }
  return result;
}

}  // namespace gpt::data
