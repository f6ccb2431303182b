#include "gpt/bench/savers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/core/error.h"

namespace gpt::bench {
namespace {

// 1 GB and 100 ms without a saver. A level of checkpointing takes 100 MB away and costs 10 ms; our operators save as much, and time.
struct SaversMachine {
  int64_t stop_after = 1000, calls = 0;
  bool counts_tensors = true;
  std::vector<int64_t> effective_batches;

  std::optional<Measurement> operator()(const Config& config, const MeasurementLength&) {
    if (calls++ == stop_after) return std::nullopt;
    const TrainingConfig& training = config.training;
    effective_batches.push_back(training.batch_size * training.gradient_accumulation_steps);
    const auto level = static_cast<int64_t>(training.execution.gradient_checkpointing);
    if (level == 1) throw Error(ExitCode::memory, "too large");
    const int64_t compiled = training.execution.use_compile ? 1 : 0, split = training.batch_size == 4 ? 1 : 0;
    const auto step_ms = static_cast<double>(100 + 10 * level - 50 * compiled);
    return Measurement{.step_ms = step_ms,
                       .tokens_per_second = 1e6 / step_ms,
                       .peak_bytes = 2'000'000'000 - 100'000'000 * (level + compiled + split),
                       .tensor_bytes = counts_tensors ? 1'000'000'000 - 100'000'000 * (level + compiled + split) : 0,
                       .threads = 3,
                       .loss = split ? 4.2 : 4.0};
  }
};

Savings measure(SaversMachine& machine) {
  Config config;
  config.training.batch_size = 8;
  return measure_savers(config, savers(config, device::DeviceInfo()), 60, std::ref(machine),
                        [](double share, const std::string&) {
                          EXPECT_GE(share, 0);
                          EXPECT_LE(share, 1);
                        });
}

const LadderRow& row_of(const Savings& savings, const std::string& name) {
  const auto found =
      std::find_if(savings.rows.begin(), savings.rows.end(), [&](const LadderRow& row) { return row.name == name; });
  EXPECT_NE(found, savings.rows.end()) << name;
  return *found;
}

TEST(Savers, EachIsComparedWithTheBaseline) {
  SaversMachine machine;
  const Savings savings = measure(machine);
  EXPECT_TRUE(savings.complete);
  EXPECT_EQ(row_of(savings, "baseline").measurement->tensor_bytes, 1'000'000'000);
  EXPECT_EQ(row_of(savings, "block").measurement->tensor_bytes, 600'000'000);
  EXPECT_NEAR(row_of(savings, "block").gain, 100.0 / 140, 1e-9);
  EXPECT_EQ(row_of(savings, "compile+block").measurement->tensor_bytes, 500'000'000);
  EXPECT_EQ(row_of(savings, "compile+block").verdict, "the same loss within 1 %");
  EXPECT_EQ(row_of(savings, "accumulation").verdict, "the loss differs by +5.0 %");
  EXPECT_EQ(row_of(savings, "compile+activation").verdict, "too large");
  EXPECT_EQ(row_of(savings, "end_to_end").verdict, "the CPU has no bfloat16 instructions");
  for (const int64_t sequences : machine.effective_batches) EXPECT_EQ(sequences, 8);
}

TEST(Savers, ASignalKeepsWhatWasMeasured) {
  SaversMachine machine;
  machine.stop_after = 10;
  const Savings savings = measure(machine);
  EXPECT_FALSE(savings.complete);
  EXPECT_GE(savings.rows.size(), 2u);
  EXPECT_LT(savings.rows.size(), savers(Config(), device::DeviceInfo()).size());
}

TEST(Savers, ResultsNameEveryRow) {
  SaversMachine machine;
  const Savings savings = measure(machine);
  const Findings result = findings(savings);
  const std::string text = to_markdown(result.text);
  for (const LadderRow& one : savings.rows) {
    EXPECT_NE(text.find("| " + one.name + " "), std::string::npos) << one.name;
    EXPECT_NE(result.json.find("\"" + one.name + "\""), std::string::npos) << one.name;
  }
  EXPECT_NE(text.find("40 %"), std::string::npos);
}

// As under `ulimit -v`.
TEST(Savers, WhereNobodyCountsTensorsTheMemoryOfTheProcessIsCompared) {
  SaversMachine machine;
  machine.counts_tensors = false;
  const std::string text = to_markdown(findings(measure(machine)).text);
  EXPECT_NE(text.find("| 1.60 GB | 1.60 GB |  20 % |"), std::string::npos) << text;
  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
}

TEST(Savers, EachCanBeNamedInACombination) {
  const device::DeviceInfo gpu = device::describe_gpu(at::Device(at::kCUDA, 0), "a card", 1LL << 34, 9, 0);
  Config wanted;
  wanted.training.batch_size = 8;
  for (const Rung& saver : savers(wanted, gpu)) {
    SCOPED_TRACE(saver.name);
    Config by_saver = without_rungs(wanted).config, by_combination = by_saver;
    saver.apply(by_saver);
    for (const Rung& rung : named_rungs(saver.name, all_rungs(wanted, gpu))) rung.apply(by_combination);
    EXPECT_EQ(config::dump(by_combination), config::dump(by_saver));
    EXPECT_NE(config::dump(by_saver), config::dump(without_rungs(wanted).config));
    config::validate(by_saver, "");
  }
}

// Two runs of each, before the time is over.
TEST(Savers, FewPairsTellNothingOfTheSpeed) {
  SaversMachine machine;
  Config config;
  config.training.batch_size = 8;
  const Savings savings = measure_savers(config, savers(config, device::DeviceInfo()), 0, std::ref(machine),
                                         [](double, const std::string&) {});
  EXPECT_EQ(row_of(savings, "block").verdict, "the same loss within 1 %; speed: cannot tell: only 1 pair");
}

}  // namespace
}  // namespace gpt::bench
