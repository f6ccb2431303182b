// The memory that the stages of a model are planned to take.
#include <gtest/gtest.h>

#include "gpt/plan/estimates.h"
#include "plan/gpt2.h"

namespace gpt::plan {
namespace {

// A half of the sums of a stage's own. Of two stages of a block each the last one takes more: the table that its head begins is there beside
// the block. Of twelve blocks the first one has eight, and nothing of its table until they have been sent.
TEST(EstimatesOfStages, Zero2DividesTheGradientsOfAStage) {
  constexpr double kBlock = 7087872, kFinalNorm = 1536, kTable = 50304 * 768, kPositions = 1024 * 768;
  DistributedConfig distributed;
  distributed.processes = 4, distributed.pipeline_parallel = 2, distributed.zero = 2;
  const auto values = [&](const ModelConfig& model) {
    const ActivationForm form = activation_form(model, {}, distributed, device::describe_device(at::kCPU), {});
    return estimate_memory(model, {}, form).gradients / 4;
  };
  EXPECT_EQ(values(gpt2(/*layers=*/2, /*heads=*/12, /*width=*/768)), 1.5 * (kBlock + kFinalNorm + kTable));
  EXPECT_EQ(values(gpt2_small()), (8 * kBlock + kPositions + kTable) / 2 + kPositions + kTable);
}

// The first two of four stages keep nothing of a micro-batch but what they give, so that the third takes most.
TEST(EstimatesOfStages, StagesBeforeWhatIsTrainedKeepNoActivations) {
  ModelConfig model = gpt2_small();
  model.vocab_size = 64;  // so that the first stage takes most
  DistributedConfig distributed;
  distributed.processes = distributed.pipeline_parallel = 4;
  TrainingConfig training;
  training.gradient_accumulation_steps = 8;
  const auto activations = [&] {
    const ActivationForm form = activation_form(model, training, distributed, device::describe_device(at::kCPU), {});
    return estimate_memory(model, training, form).activations;
  };
  const double all = activations();  // of four micro-batches in the first stage
  training.tuning.freeze = {"wte", "wpe", "h.0-5"};
  EXPECT_NEAR(activations(), all / 2, 0.1 * all) << "of two in the third";
}

}  // namespace
}  // namespace gpt::plan
