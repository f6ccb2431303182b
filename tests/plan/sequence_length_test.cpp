// training.sequence_length: what is planned for sequences that are shorter than the model's context.
#include <gtest/gtest.h>

#include "gpt/plan/estimates.h"
#include "gpt/plan/model_checks.h"
#include "plan/gpt2.h"

namespace gpt::plan {
namespace {

struct Planned {
  report::MemoryUse memory;
  double flops;
};

Planned planned(int64_t block_size, std::optional<int64_t> sequence_length) {
  ModelConfig model = gpt2_small();
  model.block_size = block_size;
  TrainingConfig training;
  training.sequence_length = sequence_length;
  return {estimate_memory(model, training, ActivationForm()), flops_per_step(model, training).model};
}

TEST(SequenceLength, ShorterSequencesCostWhatTheyAre) {
  const Planned shorter = planned(1024, 256), same = planned(256, std::nullopt), longer = planned(1024, std::nullopt);
  EXPECT_EQ(shorter.flops, same.flops);
  EXPECT_LT(shorter.flops, longer.flops / 4);
  EXPECT_EQ(shorter.memory.activations, same.memory.activations);
  EXPECT_EQ(shorter.memory.total() - same.memory.total(), 16.0 * (1024 - 256) * 768)
      << "positions that no sequence reaches";
}

}  // namespace
}  // namespace gpt::plan
