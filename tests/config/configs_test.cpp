// The files in configs/: every one loads, and what its first line says is what it does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "config/faults.h"
#include "support/source_folder.h"

namespace gpt::config {
namespace {

std::vector<std::string> shipped() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_folder() + "/configs")) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  }
  return paths;
}

std::string with_thousands(int64_t value) {
  std::string digits = std::to_string(value);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return digits;
}

Config load(const std::string& path) {
  const char* arguments[] = {"gpt-train", "--config", path.c_str()};
  return parse_command_line(3, arguments, "gpt-train", "").config;
}

TEST(Configs, EveryOneLoadsAndItsFirstLineIsTrue) {
  ASSERT_GE(shipped().size(), 10u);
  for (const std::string& path : shipped()) {
    SCOPED_TRACE(path);
    const Config c = load(path);
    const int64_t batch = c.training.batch_size, accumulation = c.training.gradient_accumulation_steps;
    std::string first_line;
    std::ifstream file(path);
    std::getline(file, first_line);
    const bool is_chosen = batch == 0;
    const int64_t sequences = is_chosen ? c.training.total_batch_size.value() : batch * accumulation;
    EXPECT_EQ(first_line, fmt::format("# Effective batch: {}{} sequences = {} tokens per update{}.",
                                      is_chosen ? "" : fmt::format("{} x {} = ", batch, accumulation), sequences,
                                      with_thousands(sequences * c.model.block_size),
                                      is_chosen ? ", as many at a time as fit into memory" : ""));
    EXPECT_EQ(c.output_dir, "models/" + std::filesystem::path(path).stem().string());
  }
}

TEST(Configs, TiersHaveTheSizesOfTheirCards) {
  struct Tier {
    const char* name;
    int64_t n_layer, n_embd, block_size, batch_size, micro_batches;
  };
  for (const Tier& tier : {Tier{"tier_24gb", 24, 1024, 512, 256, 2}, Tier{"tier_10_16gb", 12, 768, 256, 128, 4},
                           Tier{"tier_12gb", 12, 768, 256, 96, 5}, Tier{"tier_8_12gb", 8, 512, 256, 64, 8},
                           Tier{"tier_4gb", 12, 768, 256, 8, 8}}) {
    const Config c = load(fmt::format("{}/configs/{}.yaml", test::source_folder(), tier.name));
    EXPECT_EQ(c.model.n_layer, tier.n_layer) << tier.name;
    EXPECT_EQ(c.model.n_embd, tier.n_embd) << tier.name;
    EXPECT_EQ(c.model.block_size, tier.block_size) << tier.name;
    EXPECT_EQ(c.training.batch_size, tier.batch_size) << tier.name;
    EXPECT_EQ(c.training.gradient_accumulation_steps, tier.micro_batches) << tier.name;
    EXPECT_EQ(c.training.label_smoothing, 0.1) << tier.name;
  }
}

TEST(Configs, NanogptIsComparable) {
  const Config c = load(test::source_folder() + "/configs/nanogpt_cpu.yaml");
  EXPECT_EQ(c.model.hidden(), 512);
  EXPECT_EQ(c.model.vocab_multiple, 1);
  EXPECT_TRUE(c.model.tie_weights);
  EXPECT_FALSE(c.model.bias);
  EXPECT_EQ(c.model.dropout, 0);
  EXPECT_EQ(c.training.schedule.max_steps, 2000);
  EXPECT_EQ(c.training.schedule.min_lr, 1e-4);
  EXPECT_EQ(c.training.optimizer.beta2, 0.99);
  EXPECT_EQ(c.training.precision.dtype, Dtype::float32);
  EXPECT_EQ(c.training.label_smoothing, 0);
  EXPECT_EQ(c.training.cadence.eval_batches, 0);
  EXPECT_EQ(c.data.dataset, DatasetName::none);
}

}  // namespace
}  // namespace gpt::config
