// What a process keeps of a model that several divide, and writes.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "distributed/local_group.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/model/gpt.h"
#include "gpt/model/tensor_parallel.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/plan/estimates.h"

namespace gpt::plan {
namespace {

// What both of two processes keep of a forward pass, in bytes, where they divide the model.
double kept_by_two(const ModelConfig& model, const TrainingConfig& training) {
  device::use_cpu_allocator();
  double kept = 0;
  test::in_ranks(2, [&](distributed::Group& group) {
    group.arrange(2);
    distributed::Communicator& tensor = *group.mesh().tensor;
    model::GPT part(model, at::kCPU, 1, {}, {}, {tensor.rank(), 2});
    part.train(true);
    part.set_gradient_checkpointing(training.execution.gradient_checkpointing);
    part.set_operators(model::tensor_parallel(ops::fused_operators(), group.mesh().tensor, model));
    const at::Tensor ids = at::zeros({training.batch_size, model.block_size}, at::kLong);
    part.loss(ids, ids).backward();  // gradients, and what sums take, stay
    const auto in_use = [&tensor] {
      constexpr int kReads = 30;
      tensor.sum(at::zeros({1}));  // both are here
      int64_t least = device::cpu_memory().in_use;
      for (int i = 0; i < kReads; ++i) {  // Gloo's threads let go of what they have sent a little later
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        least = std::min(least, device::cpu_memory().in_use);
      }
      tensor.sum(at::zeros({1}));
      return static_cast<double>(least);
    };
    const double before = in_use();
    const at::Tensor loss = part.loss(ids, ids);
    const double all = in_use() - before;
    if (tensor.is_first()) kept = all;
  });
  return kept;
}

TEST(EstimateMemory, TwoProcessesKeepHalfOfTheStreamEach) {
  using enum GradientCheckpointing;
  for (const bool is_llama : {false, true}) {
    for (const GradientCheckpointing level : {none, norm, selective, block}) {
      ModelConfig model;
      model.n_layer = 3, model.n_head = model.n_kv_head = 4, model.n_embd = 128, model.block_size = 128;
      model.vocab_size = 64;
      if (!is_llama) model.norm = Norm::layernorm, model.mlp = Mlp::gelu, model.position = Position::learned;
      TrainingConfig training;
      training.batch_size = 4, training.execution.gradient_checkpointing = level;
      const ActivationForm form{.fused_attention = true, .own_operators = true, .model_parts = 2};
      const double planned = 2 * estimate_memory(model, training, form).activations;
      EXPECT_NEAR(kept_by_two(model, training) / planned, 1, 0.02)
          << "level " << static_cast<int>(level) << ", " << (is_llama ? "Llama" : "GPT-2");
    }
  }
}

// A checkpoint is written by all that have parts of the state, of layers or of stages.
TEST(Estimates, CheckpointsAreDividedWhereTheStateIs) {
  const auto parts = [](const DistributedConfig& distributed) {
    return activation_form({}, {}, distributed, device::describe_device(at::kCPU), {}).checkpoint_parts;
  };
  DistributedConfig distributed;
  distributed.processes = 8;
  EXPECT_EQ(parts(distributed), 1);
  distributed.zero = 1;
  EXPECT_EQ(parts(distributed), 8);
  distributed.zero = 0, distributed.tensor_parallel = 2;
  EXPECT_EQ(parts(distributed), 8);
  distributed.processes = 1, distributed.tensor_parallel = 1, distributed.zero = 1;
  EXPECT_EQ(parts(distributed), 1);
}

}  // namespace
}  // namespace gpt::plan
