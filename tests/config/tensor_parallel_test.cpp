#include "gpt/config/tensor_parallel.h"

#include <gtest/gtest.h>

#include <string>

namespace gpt::config {
namespace {

Config divided(int64_t processes, int64_t tensor_parallel) {
  Config config;
  config.model.n_head = 8, config.model.n_kv_head = 4, config.model.n_embd = 64, config.model.n_hidden = 96;
  config.distributed.processes = processes, config.distributed.tensor_parallel = tensor_parallel;
  return config;
}

void expect_obstacle(const Config& config, const std::string& part) {
  const std::string why = tensor_parallel_obstacle(config);
  EXPECT_NE(why.find(part), std::string::npos) << "got: " << why << "\nlacks: " << part;
}

TEST(TensorParallelObstacle, IsNoneWhereEverySizeCanBeDivided) {
  EXPECT_EQ(tensor_parallel_obstacle(divided(4, 2)), "");
  EXPECT_EQ(tensor_parallel_obstacle(divided(4, 4)), "");
  EXPECT_EQ(tensor_parallel_obstacle(divided(1, 4)), "") << "a launcher may start more";
  Config whole = divided(3, 1);
  whole.training.execution.use_compile = false;
  EXPECT_EQ(tensor_parallel_obstacle(whole), "");
  Config weights = divided(4, 2);
  weights.distributed.zero = 3;
  EXPECT_EQ(tensor_parallel_obstacle(weights), "");
}

TEST(TensorParallelObstacle, NamesTheNearestSizesThatFit) {
  expect_obstacle(divided(6, 4), "tensor_parallel 4 does not divide 6 processes; set processes to 4 or 8");
  expect_obstacle(divided(3, 4), "does not divide 3 processes; set processes to 4");
  expect_obstacle(divided(3, 3),
                  "model.n_head is 8, which tensor_parallel 3 cannot divide evenly; the nearest that it can is 6 or 9");
  expect_obstacle(divided(8, 8),
                  "model.n_kv_head is 4, which tensor_parallel 8 cannot divide evenly; the nearest that it can is 8");
  Config config = divided(4, 4);
  config.model.n_hidden = 98;
  expect_obstacle(
      config,
      "model.n_hidden is 98, which tensor_parallel 4 cannot divide evenly; the nearest that it can is 96 or 100");
  config.model.n_hidden = 96, config.model.vocab_size = 3, config.model.vocab_multiple = 1;
  expect_obstacle(config, "tensor_parallel 4 is more than the 3 rows of the vocabulary; set it to 3 or less");
}

TEST(TensorParallelObstacle, NamesWhatItDoesNotGoTogetherWith) {
  Config compiled = divided(2, 2), muon = compiled, taught = compiled;
  compiled.training.execution.use_compile = false;
  expect_obstacle(compiled, "tensor_parallel needs use_compile's operators");
  muon.training.optimizer.kind = OptimizerKind::muon;
  expect_obstacle(muon, "Muon needs whole matrices");
  taught.training.distillation.from = "larger";
  expect_obstacle(taught, "distill_from needs all logits");
}

}  // namespace
}  // namespace gpt::config
