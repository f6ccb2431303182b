// The memory that the stages of a model are planned to take.
#include <gtest/gtest.h>

#include "gpt/plan/estimates.h"
#include "plan/gpt2.h"

namespace gpt::plan {
namespace {

// The first two of four stages keep nothing of a micro-batch but what they give, so that the third takes most.
TEST(EstimatesOfStages, StagesBeforeWhatIsTrainedKeepNoActivations) {
  ModelConfig model = gpt2_small();
  model.vocab_size = 64;  // so that the first stage takes most
  DistributedConfig distributed;
  distributed.processes = distributed.pipeline_parallel = 4;
  TrainingConfig training;
  training.gradient_accumulation_steps = 8;
  const auto activations = [&] {
    const ActivationForm form = activation_form(model, training, distributed, describe_device(at::kCPU), {});
    return estimate_memory(model, training, form).activations;
  };
  const double all = activations();  // of four micro-batches in the first stage
  training.freeze = {"wte", "wpe", "h.0-5"};
  EXPECT_NEAR(activations(), all / 2, 0.1 * all) << "of two in the third";
}

}  // namespace
}  // namespace gpt::plan
