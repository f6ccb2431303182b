// The time of an update, against what follows from the bytes that it sends, and from which of them computing hides.
#include "gpt/plan/step_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "gpt/layout/cut.h"
#include "gpt/layout/layer_ends.h"
#include "gpt/layout/stages.h"
#include "gpt/parallel/division.h"
#include "gpt/plan/sent_bytes.h"
#include "plan/gpt2.h"

namespace gpt::plan {
namespace {

constexpr double kSpeed = 1e9;
constexpr StepForm kFloat32{}, kRecorded{.is_recorded = true};
constexpr StepParts kNothing{}, kLong{.micro_batch = 1000, .update = 7};

// All on one machine, without latencies.
Network fast_network(int64_t processes) { return {.of_machine = processes, .within = {0, kSpeed}}; }

Config run_of(int64_t processes, int64_t zero, int64_t micro_batches, int64_t tensor = 1) {
  Config config = gpt2_small_run(2, micro_batches);
  config.distributed.processes = processes, config.distributed.zero = zero;
  config.distributed.tensor_parallel = tensor;
  return config;
}

double sending(const Config& config, const StepForm& form, const StepParts& parts) {
  return schedule_update(config, form, parts, fast_network(config.distributed.processes)).sending;
}

// Where nothing is computed, what remains is the time of the bytes that sent_bytes() counts by formulas of its own.
TEST(ScheduleUpdate, SendsTheBytesOfThePlan) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    for (const int64_t micro_batches : {4, 10}) {
      for (const bool end_to_end : {false, true}) {
        Config config = run_of(4, zero, micro_batches);
        config.training.precision.gradient_dtype = GradientDtype::float32;
        const double bytes = sent_bytes(config, end_to_end, 4);
        EXPECT_NEAR(sending(config, {.end_to_end = end_to_end}, kNothing) * kSpeed / bytes, 1, 1e-6)
            << "zero " << zero << ", " << micro_batches << " micro-batches, end to end: " << end_to_end;
      }
    }
  }
  Config narrow = run_of(4, 1, 4);
  narrow.distributed.reduce_dtype = ReduceDtype::bfloat16;
  EXPECT_NEAR(sending(narrow, kFloat32, kNothing) * kSpeed / sent_bytes(narrow, false, 4), 1, 1e-6);
}

// But for four numbers for each token, which are sent beside the sums of 768 values and counted with them.
TEST(ScheduleUpdate, SendsWhatADividedModelAddsUp) {
  for (const GradientCheckpointing level : {GradientCheckpointing::none, GradientCheckpointing::selective}) {
    Config config = run_of(4, 0, 6, /*tensor=*/2);
    config.training.execution.gradient_checkpointing = level;
    EXPECT_NEAR(sending(config, kRecorded, kNothing) * kSpeed / sent_bytes(config, false, 4), 1, 1e-6);
  }
}

// The weights of the next block are on their way while those that divide this one add it up, over other wires.
TEST(ScheduleUpdate, WeightsOfPartsTravelBesideSumsOfLayers) {
  Config config = run_of(4, 0, 6, /*tensor=*/2);
  const double gradients =
                   4.0 * static_cast<double>(
                             layout::flat_layout(layout::parameter_table(layout::largest_part(config.model, 2))).size),
               of_layers = sent_bytes(config, /*end_to_end=*/false, 4) - gradients;
  config.distributed.zero = 3;
  const double all = sent_bytes(config, false, 4), time = sending(config, kFloat32, kNothing) * kSpeed;
  EXPECT_LT(time, 0.9 * all);
  EXPECT_GE(time, std::max(of_layers, all - of_layers));
}

TEST(ScheduleUpdate, OneProcessComputesAllMicroBatches) {
  const MeshTime time = schedule_update(run_of(1, 2, 5), kFloat32, {.micro_batch = 2, .update = 3}, fast_network(1));
  EXPECT_NEAR(time.computing, 5 * 2 + 3, 1e-9);
  EXPECT_NEAR(time.sending, 0, 1e-9);
}

TEST(ScheduleUpdate, TheBusiestProcessCounts) {
  const MeshTime time = schedule_update(run_of(4, 0, 5), kFloat32, {.micro_batch = 2, .update = 3}, fast_network(4));
  EXPECT_NEAR(time.computing, 2 * 2 + 3, 1e-9) << "two of the five micro-batches";
}

// Values of the stretches of the flat buffer that have some of the first block or of the embeddings: after their gradients a backward pass
// computes nothing, and before their weights a forward pass.
double of_the_beginning(const Config& config) {
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(config.model);
  const layout::FlatLayout layout = layout::flat_layout(rows);
  const int64_t step = parallel::stretch_values(layout.trained_size, config.distributed.processes),
                before = layout::layer_ends(rows, layout)[1] / step * step;
  return static_cast<double>(layout.trained_size - before);
}

// A backward pass that takes long hides all but what its end completes; a recorded one, or LibTorch's operators, hide nothing.
TEST(ScheduleUpdate, ABackwardPassHidesWhatItHasCompleted) {
  constexpr double kThreeQuarters = 0.75, kBytes = 4;
  Config config = run_of(4, 0, 4);
  const double all = 2 * kThreeQuarters * kBytes * 124'475'904 / kSpeed,
               last = 2 * kThreeQuarters * kBytes * of_the_beginning(config) / kSpeed;
  EXPECT_NEAR(sending(config, kFloat32, kLong), last, 1e-6);
  EXPECT_LT(last, 0.5 * all);
  EXPECT_NEAR(sending(config, kRecorded, kLong), all, 1e-6);
  config.training.execution.use_compile = false;
  EXPECT_NEAR(sending(config, kFloat32, kLong), all, 1e-6);
}

// Only the last micro-batch's backward pass hides anything of the sums of ZeRO 0 and 1; ZeRO 2 sends in every round. Of the new weights the
// next forward pass hides all but those with which it begins.
TEST(ScheduleUpdate, StagesDifferInWhatTheyHide) {
  constexpr double kThreeQuarters = 0.75, kBytes = 4, kParameters = 124'475'904, kSent = kThreeQuarters * kBytes;
  const double norms = 2 * kSent * (kParameters / 256 + 1) / kSpeed;
  Config one = run_of(4, 1, 8);
  EXPECT_NEAR(sending(one, kFloat32, kLong), 2 * kSent * of_the_beginning(one) / kSpeed + norms, 1e-6);
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(one.model);
  const layout::FlatLayout layout = layout::flat_layout(rows);
  const std::vector<int64_t> segments = parallel::segment_ends(2, rows, layout, /*is_of_stage=*/false);
  // Each of the two rounds waits at its end for the first layer's gradients and then for the embeddings'.
  const auto waited = static_cast<double>(segments.back() - segments[segments.size() - 3]),
             beginning = static_cast<double>(layout.trained_size - layout::layer_ends(rows, layout)[1]);
  EXPECT_NEAR(sending(run_of(4, 2, 8), kFloat32, kLong), kSent * (2 * waited + beginning) / kSpeed + norms, 1e-6);
  one.training.execution.use_compile = false;
  EXPECT_NEAR(sending(one, kFloat32, kLong), 2 * kSent * kParameters / kSpeed + norms, 1e-6) << "nothing is hidden";
}

// The first block's weights at the beginning of an update, and at the end of its backward pass its gradients and those of the
// embeddings; then what lies outside blocks, as new weights.
TEST(ScheduleUpdate, ZeroThreeFetchesWeightsAhead) {
  constexpr double kThreeQuarters = 0.75, kBytes = 4, kParameters = 124'475'904, kBlock = 7'087'872,
                   kFinalNorm = 2 * 768;
  const double outside = kParameters - 12 * kBlock, norms = 2 * (kParameters / 256 + 1);
  EXPECT_NEAR(sending(run_of(4, 3, 4), kFloat32, kLong),
              kThreeQuarters * kBytes * (2 * kBlock + outside - kFinalNorm + norms + outside) / kSpeed, 1e-6);
}

Config run_of_stages(int64_t stages, int64_t micro_batches) {
  Config config = run_of(stages, 0, micro_batches);
  config.distributed.pipeline_parallel = stages;
  return config;
}

TEST(ScheduleUpdate, TheSlowestStageCountsAndWaitsForTheOthers) {
  const Config config = run_of_stages(4, 6);
  const std::vector<double> costs = layout::stage_costs(config.model, layout::stages_of(config.model, 4));
  const double share = *std::max_element(costs.begin(), costs.end()) / std::accumulate(costs.begin(), costs.end(), 0.0);
  const MeshTime time = schedule_update(config, kFloat32, {.micro_batch = 2}, {.of_machine = 4});
  EXPECT_NEAR(time.computing / ((6 + 3) * 2 * share), 1, 1e-3) << "of the embeddings nothing is counted here";
  EXPECT_NEAR(time.sending, 0, 1e-9);
}

// Four layers of 7,087,872 values, of the twelve and the tables.
TEST(ScheduleUpdate, AStageUpdatesWhatItHas) {
  Config config = run_of_stages(3, 6);
  config.model.vocab_size = 64;  // so that the head takes no time, and the first stages have as many layers as the last
  const double layers = 7'087'872,
               update = schedule_update(config, kFloat32, {.update = 3}, {.of_machine = 3}).computing;
  EXPECT_GT(update, 3 * 4 * layers / (12 * layers + 1024 * 768 + 64 * 768 + 2 * 768) - 1e-6);
  EXPECT_LT(update, 3 * (4 * layers + 1024 * 768 + 64 * 768 + 2 * 768) / (12 * layers));
}

TEST(ScheduleUpdate, SendsWhatStagesGiveToEachOther) {
  const Config config = run_of_stages(2, 6);
  EXPECT_NEAR(sending(config, kFloat32, kNothing) * kSpeed / sent_bytes(config, false, 2), 1, 1e-6);
}

TEST(ScheduleUpdate, ComputingHidesActivationsButForTheFirstAndTheLast) {
  Config config = run_of_stages(2, 6);
  config.model.tie_weights = false;
  const double hop = 4.0 * 2 * 1024 * 768 / kSpeed, norms = 4.0 * static_cast<double>(163'073'280 / 256 + 1) / kSpeed;
  EXPECT_NEAR(sending(config, kFloat32, kLong), 2 * hop + norms, 1e-3 * norms);
}

TEST(ScheduleUpdate, WhatTakesTheCoresIsNotHidden) {
  const Config config = run_of(4, 0, 4);
  const Network loopback = join_cpus({/*latency=*/0, kSpeed}, 4);
  const MeshTime time = schedule_update(config, kFloat32, kLong, loopback);
  EXPECT_NEAR(time.sending, sent_bytes(config, false, 4) / kSpeed, 1e-6);
  EXPECT_NEAR(time.computing, 1007, 1e-9);
}

// Every stretch has messages to the three others: at the same time on the way there, one after the other on the way back.
TEST(ScheduleUpdate, EachStretchHasItsMessages) {
  constexpr double kLatency = 1e-3;
  const Config config = run_of(4, 0, 4);
  Network network = fast_network(4);
  network.within = {kLatency};
  const int64_t step = parallel::stretch_values(124'475'904, 4), stretches = (124'475'904 + step - 1) / step;
  EXPECT_NEAR(schedule_update(config, kRecorded, kNothing, network).sending,
              static_cast<double>(stretches + 1) * (1 + 3) * kLatency, 1e-9)
      << "and those of the loss";
}

}  // namespace
}  // namespace gpt::plan
