// Runs that processes compute with a part of the model each: the updates and checkpoints of one process.
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "gpt/layout/layer_ends.h"
#include "gpt/model/tensor_parallel.h"
#include "gpt/ops/moments.h"
#include "gpt/parallel/divided_weights.h"
#include "gpt/plan/estimates.h"
#include "gpt/plan/sent_bytes.h"
#include "run/mesh_run.h"
#include "support/long_test.h"

namespace gpt::run {
namespace {

struct TensorCase {
  const char* name;
  std::function<void(Config&)> set;
  std::vector<Shape> shapes = {{4, 2}};
  at::ScalarType type = at::kFloat;  // of the roundings
};

void PrintTo(const TensorCase& run_case, std::ostream* out) { *out << run_case.name; }

const TensorCase kTensorCases[] = {
    {"llama_tied", [](Config&) {}, {{2, 2}, {4, 2}, {4, 4}, {4, 2, 2}}},
    {"llama_with_groups_of_queries_untied",
     [](Config& config) { config.model.n_head = 8, config.model.tie_weights = false; }},
    {"gpt2", make_gpt2, {{2, 2}, {4, 4}}},
    {"gpt2_untied_and_recomputed",
     [](Config& config) {
       make_gpt2(config);
       config.model.tie_weights = false;
       config.training.execution.gradient_checkpointing = GradientCheckpointing::block;
     },
     {{2, 2}, {4, 2, 2}}},
    {"gpt2_with_dropout_and_an_odd_number_of_rows",
     [](Config& config) {
       make_gpt2(config);
       config.model.block_size = 15, config.model.dropout = 0.2;
     },
     {{4, 2, 2}}},
    {"clipped", [](Config& config) { config.training.optimizer.gradient_clip = 0.1; }, {{2, 2}}},
    {"windowed", [](Config& config) { config.model.attention_window = 5; }, {{2, 2}}},
    {"smoothed", [](Config& config) { config.training.label_smoothing = 0.1; }, {{2, 2}}},
    {"frozen", [](Config& config) { config.training.tuning.freeze = {"wte", "h.0", "h.1.attn.c_attn"}; }, {{2, 2}}},
    {"zero_1", [](Config& config) { config.distributed.zero = 1; }},
    {"zero_2", [](Config& config) { config.distributed.zero = 2; }},
    {"autocast", [](Config& config) { use_bfloat16(config, AmpMode::autocast); }, {{2, 2}}, at::kBFloat16},
    {"bfloat16_end_to_end",
     [](Config& config) { use_bfloat16(config, AmpMode::end_to_end); },
     {{2, 2}, {4, 2, 2}},
     at::kBFloat16},
};

class TensorParallelRun : public testing::TestWithParam<TensorCase> {};

TEST_P(TensorParallelRun, UpdatesAreThoseOfOneProcess) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = divided_run(corpus);
  GetParam().set(config);
  const int64_t all =
      config.training.tuning.freeze.empty() ? compared_updates() : 20;  // until its loss has fallen as much
  const Outcome one = outcome_on({1, 1}, config, corpus, all);
  EXPECT_LT(one.losses.back(), one.losses.front() - 0.1) << "or nothing is shown";
  for (const Shape& shape : GetParam().shapes)
    expect_close(outcome_on(shape, config, corpus, all), one, config, GetParam().type);
}

INSTANTIATE_TEST_SUITE_P(All, TensorParallelRun, testing::ValuesIn(kTensorCases),
                         [](const auto& test) { return std::string(test.param.name); });

struct WeightsCase {
  const char* name;
  std::function<void(Config&)> set;
  int64_t like = 0;  // the stage of ZeRO that has the same order of additions
  bool is_long = true;
};

void PrintTo(const WeightsCase& weights_case, std::ostream* out) { *out << weights_case.name; }

const WeightsCase kWeightsCases[] = {
    {"groups_of_queries_untied", [](Config& config) { config.model.n_head = 8, config.model.tie_weights = false; }},
    {"gpt2_untied_and_recomputed_whole",
     [](Config& config) {
       make_gpt2(config);
       config.model.tie_weights = false;
       config.training.execution.gradient_checkpointing = GradientCheckpointing::block;
     }},
    {"bfloat16_end_to_end", [](Config& config) { use_bfloat16(config, AmpMode::end_to_end); }, 0, /*is_long=*/false},
    {"weights_of_bfloat16_alone",
     [](Config& config) {
       use_bfloat16(config, AmpMode::end_to_end);
       config.training.precision.master_weights = false;
       config.training.optimizer.state_dtype = StateDtype::bfloat16;
     }},
    {"gpt2_tied_and_recomputed_in_part_with_a_lane_for_each_of_three_micro_batches",
     [](Config& config) {
       make_gpt2(config);
       config.training.execution.gradient_checkpointing = GradientCheckpointing::selective;
       config.distributed.lanes = 4, config.training.gradient_accumulation_steps = 3;
     },
     0,
     /*is_long=*/false},
    {"three_micro_batches", [](Config& config) { config.training.gradient_accumulation_steps = 3; }, /*like=*/2},
};

class TensorParallelWeights : public testing::TestWithParam<WeightsCase> {};

// Two groups divide among them what each of two processes has of the blocks, and nothing is added in another order.
TEST_P(TensorParallelWeights, AreThoseOfWholePartsToTheBit) {
  if (GetParam().is_long) SKIP_UNLESS_ALL_TESTS();
  const int64_t all = compared_updates();
  const data::Corpus corpus = corpus_with_validation();
  Config config = divided_run(corpus);
  config.model.n_layer = 3;  // one more than there is memory for at a time
  GetParam().set(config);
  config.distributed.zero = GetParam().like;
  const Outcome whole = outcome_on({4, 2}, config, corpus, all);
  EXPECT_LT(whole.losses.back(), whole.losses.front() - 0.1) << "or nothing is shown";
  config.distributed.zero = 3;
  const Outcome divided = outcome_on({4, 2}, config, corpus, all);
  expect_same_outcome(divided, whole);
}

INSTANTIATE_TEST_SUITE_P(All, TensorParallelWeights, testing::ValuesIn(kWeightsCases),
                         [](const auto& test) { return std::string(test.param.name); });

// Processors may draw other weights: what all of a group have is the first one's, though a part of the vocabulary may be longer, so that the
// processes that divide it further have other parts of the rest.
TEST(TensorParallelParts, WhatAllHaveIsTheFirstOnes) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = divided_run(corpus);
  make_gpt2(config);
  config.model.tie_weights = false, config.model.vocab_size = 33;
  config.distributed.zero = 3;
  in_mesh({4, 2}, config, corpus, [](run::Setup& setup) {
    setup.config.seed = 3 + setup.mesh.all->rank();
    const run::Run run(setup);
    const parameters::Parameters& parameters = run.state().model.parameters();
    for (size_t i = 0; i < parameters.rows().size(); ++i) {
      const layout::ParameterRow& row = parameters.rows()[i];
      if (row.cut) continue;
      const at::Tensor value = parallel::undivided_value(parameters, i, *setup.mesh.data);
      const at::Tensor of_first = value.clone();
      setup.mesh.tensor->broadcast(of_first);
      EXPECT_TRUE(at::equal(value, of_first)) << row.name;
    }
  });
}

// Codes are rounded anew, in the blocks of a part and again in those of the whole: neighbouring fractions of a block's largest magnitude
// are at most 1.6 % of it apart (ops/moments.h), half of which may be lost each time, of the largest magnitude itself too.
void expect_near_moments(const checkpoint::Checkpoint& a, const checkpoint::Checkpoint& b) {
  constexpr double kOfLargest = 0.03;
  for (const std::string_view slot : {"exp_avg", "exp_avg_sq"}) {
    const ops::MomentKind kind = optim::moment_kind(slot);
    const auto values_of = [&](const checkpoint::Checkpoint& checkpoint, size_t i) {
      const auto& [name, codes] = checkpoint.optimizer.slot(slot)[i];
      if (codes.scalar_type() != at::kByte) return codes;
      for (const auto& [row, maxima] : checkpoint.optimizer.slot(std::string(slot) + "_max"))
        if (row == name) return ops::dequantized({codes, maxima}, kind);
      return at::Tensor();
    };
    ASSERT_EQ(a.optimizer.slot(slot).size(), b.optimizer.slot(slot).size());
    for (size_t i = 0; i < a.optimizer.slot(slot).size(); ++i) {
      const at::Tensor expected = values_of(a, i);
      const double difference = (values_of(b, i) - expected).abs().max().item<double>();
      EXPECT_LE(difference, kOfLargest * expected.abs().max().item<double>()) << slot << " " << i;
    }
  }
}

class TensorParallelState : public testing::TestWithParam<std::tuple<int64_t, StateDtype>> {};

// What one mesh has written others read, and write again as it was; the mesh itself goes on as if it had not stopped. Moments of 8 bits
// belong to the blocks of a part, and are rounded when they are read.
TEST_P(TensorParallelState, IsReadByAnyOtherMesh) {
  const auto [zero, dtype] = GetParam();
  if (zero % 2 == 0) SKIP_UNLESS_ALL_TESTS();
  const data::Corpus corpus = corpus_with_validation();
  Config config = divided_run(corpus);
  config.distributed.zero = zero, config.training.optimizer.state_dtype = dtype;
  const Outcome written = outcome_on({4, 2}, config, corpus, 3);
  const Outcome fresh = outcome_on({1, 1}, config, corpus, 0), of_mesh = outcome_on({4, 4}, config, corpus, 0);
  expect_equal(fresh.checkpoint.model, of_mesh.checkpoint.model);  // the weights that a run begins with
  for (const Shape& shape : {Shape{4, 2}, Shape{2, 2}, Shape{4, 4}, Shape{1, 1}, Shape{2, 1}}) {
    const Outcome read = outcome_on(shape, config, corpus, 0, &written.checkpoint);
    expect_equal(read.checkpoint.model, written.checkpoint.model);
    if (dtype != StateDtype::int8) {
      expect_same_state(read.checkpoint, written.checkpoint);
    } else {
      expect_near_moments(read.checkpoint, written.checkpoint);
    }
  }
  if (dtype == StateDtype::int8) return;
  const Outcome straight = outcome_on({4, 2}, config, corpus, 5),
                resumed = outcome_on({4, 2}, config, corpus, 2, &written.checkpoint);
  expect_same_state(resumed.checkpoint, straight.checkpoint);
  EXPECT_EQ(resumed.norms.back(), straight.norms.back());
}

INSTANTIATE_TEST_SUITE_P(All, TensorParallelState,
                         testing::Values(std::tuple(0, StateDtype::float32), std::tuple(2, StateDtype::bfloat16),
                                         std::tuple(1, StateDtype::int8), std::tuple(3, StateDtype::float32)));

// Every process has what it would have alone, and of the rest an n-th.
TEST(TensorParallelMemory, GradientsAndMomentsAreDivided) {
  const data::Corpus corpus = corpus_with_validation();
  const Config config = divided_run(corpus);
  const auto values_of = [&](int64_t parts) {
    return layout::flat_layout(layout::parameter_table(layout::largest_part(config.model, parts))).trained_size;
  };
  in_mesh({2, 2}, config, corpus, [&](const run::Setup& setup) {
    run::Run run(setup);
    EXPECT_LE(run.state().optimizer->bytes().device, 8 * values_of(2));
    EXPECT_LT(run.state().optimizer->bytes().device, 0.6 * 8 * static_cast<double>(values_of(1)));
    EXPECT_LE(run.model().parameters().layout().size, values_of(2));
  });
}

// What one process of two, or of two groups of two, contributes to a checkpoint: as much as each other, but for what is whole in all of them,
// which the first of a group has.
TEST(TensorParallelMemory, EachHasAsMuchOfACheckpoint) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = divided_run(corpus);
  for (const StateDtype dtype : {StateDtype::float32, StateDtype::int8}) {
    config.training.optimizer.state_dtype = dtype;
    for (const Shape& shape : {Shape{2, 2}, Shape{4, 2}}) {
      in_mesh(shape, config, corpus, [&](const run::Setup& setup) {
        run::Run run(setup);
        run.state().prepare_capture();
        const checkpoint::Checkpoint captured = run.state().capture();
        double own = 0, all = 0;
        for (const auto& [record, parts] : captured.parts)
          for (const checkpoint::TensorPart& part : parts)
            own += part.values.defined() ? static_cast<double>(part.values.nbytes()) : 0;
        const auto count = [&all](const parameters::NamedTensors& tensors) {
          for (const auto& [name, tensor] : tensors) all += static_cast<double>(tensor.nbytes());
        };
        count(captured.model);
        for (const auto& [slot, tensors] : captured.optimizer.slots) count(tensors);
        EXPECT_NEAR(own / all, 1.0 / static_cast<double>(shape.processes), 0.03);
      });
    }
  }
}

// With ZeRO 3 also of the blocks, but for the two for which there is memory.
TEST(TensorParallelMemory, WeightsAreDividedFurther) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = divided_run(corpus);
  constexpr Shape kGroupsOfTwo{4, 2};
  set_shape(config, kGroupsOfTwo);
  config.distributed.zero = 3, config.model.n_layer = 3;
  const plan::ActivationForm form =
      plan::activation_form(config.model, config.training, config.distributed, device::describe_device(at::kCPU), {});
  const double planned = plan::estimate_memory(config.model, config.training, form).weights;
  in_mesh(kGroupsOfTwo, config, corpus, [&](const run::Setup& setup) {
    const run::Run run(setup);
    const parameters::Parameters& parameters = run.state().model.parameters();
    const auto [begin, end] = parameters.divided_values()->blocks()[0];
    const double rooms = 2.0 * static_cast<double>((end - begin) * sizeof(float)),
                 parts_that_are_longer = 3.0 * layout::kParameterAlignment * sizeof(float);
    EXPECT_NEAR(static_cast<double>(parameters.value_bytes()) + rooms, planned, parts_that_are_longer);
  });
}

// Parts of what is summed are padded to equal lengths: here only those of the loss, the norms, and the gradients' last stretch.
class TensorParallelBytes : public testing::TestWithParam<int64_t> {};

TEST_P(TensorParallelBytes, AnUpdateSendsWhatThePlanSays) {
  constexpr int64_t kUpdatesCounted = 3;
  const data::Corpus corpus = some_corpus(400);  // no micro-batch of an epoch's end is missing
  Config config = divided_run(corpus);
  config.model.block_size = 64, config.training.batch_size = 4, config.training.gradient_accumulation_steps = 4;
  constexpr Shape kGroupsOfTwo{4, 2};
  set_shape(config, kGroupsOfTwo);
  config.distributed.zero = GetParam();
  in_mesh(kGroupsOfTwo, config, corpus, [&](const run::Setup& setup) {
    run::Run run(setup);
    const int64_t before = setup.mesh.bytes_sent(), of_tensor_before = setup.mesh.tensor->bytes_sent();
    for (int64_t i = 0; i < kUpdatesCounted; ++i) EXPECT_TRUE(run.update([] { return false; }));
    const double sent = static_cast<double>(setup.mesh.bytes_sent() - before) / kUpdatesCounted,
                 planned = plan::sent_bytes(config, /*end_to_end=*/false, 4);
    EXPECT_NEAR(sent, planned, 0.01 * planned);
    const double of_tensor = static_cast<double>(setup.mesh.tensor->bytes_sent() - of_tensor_before) / kUpdatesCounted,
                 textbook = 2 * model::tensor_sums(config.model, {.size = 2}, /*tokens=*/4 * 64, {},
                                                   GradientCheckpointing::none)
                                    .bytes;
    EXPECT_NEAR(of_tensor, textbook, 3 * 2 * sizeof(float) + 1)
        << "beside the sums of activations only norms of parts are sent";
  });
}

INSTANTIATE_TEST_SUITE_P(All, TensorParallelBytes, testing::Values(0, 2, 3),
                         [](const auto& test) { return fmt::format("zero_{}", test.param); });

// Bytes of so many float32 values that go to the other one of two processes, with what pads the parts to equal lengths.
double bytes_of_half(int64_t count) {
  return static_cast<double>(distributed::part_of(count, 0, 2).end) * sizeof(float);
}

// As DividedRun.WeightsComeTogetherForEachPassThatNeedsThem has it, of a process's parts: to the one that has the same.
TEST(TensorParallelParts, ComeTogetherFromThoseThatHaveTheSamePart) {
  constexpr int64_t kLayers = 3, kRounds = 2, kUpdatesCounted = 3;
  const data::Corpus corpus = some_corpus(400);
  Config config = divided_run(corpus);
  config.model.n_layer = kLayers, config.training.gradient_accumulation_steps = 4;
  config.distributed.zero = 3;
  in_mesh({4, 2}, config, corpus, [](const run::Setup& setup) {
    run::Run run(setup);
    const parameters::Parameters& parameters = run.state().model.parameters();
    const std::vector<int64_t> ends = layout::layer_ends(parameters.rows(), parameters.layout());
    const int64_t size = parameters.layout().size;
    const double block = bytes_of_half(ends[0] - ends[1]),
                 outside = bytes_of_half(ends.back()) + bytes_of_half(size - ends[0]),
                 norms = 2 * bytes_of_half(size / layout::kParameterAlignment + 1);
    const int64_t before = setup.mesh.data->bytes_sent();
    for (int64_t i = 0; i < kUpdatesCounted; ++i) EXPECT_TRUE(run.update([] { return false; }));
    EXPECT_EQ(static_cast<double>(setup.mesh.data->bytes_sent() - before) / kUpdatesCounted,
              (1 + 2 * kRounds * (kLayers - 1)) * block + outside + kRounds * (kLayers * block + outside) + norms);
  });
}

}  // namespace
}  // namespace gpt::run
