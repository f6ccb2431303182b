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

#include "gpt/model/tensor_parallel.h"
#include "gpt/ops/moments.h"
#include "gpt/plan/sent_bytes.h"
#include "run/mesh_run.h"

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
    {"clipped", [](Config& config) { config.training.optimizer.gradient_clip = 0.1; }, {{2, 2}}},
    {"windowed", [](Config& config) { config.model.attention_window = 5; }, {{2, 2}}},
    {"smoothed", [](Config& config) { config.training.label_smoothing = 0.1; }, {{2, 2}}},
    {"frozen", [](Config& config) { config.training.freeze = {"wte", "h.0", "h.1.attn.c_attn"}; }, {{2, 2}}},
    {"zero_1", [](Config& config) { config.distributed.zero = 1; }},
    {"zero_2", [](Config& config) { config.distributed.zero = 2; }},
    {"autocast", [](Config& config) { use_bfloat16(config, AmpMode::autocast); }, {{2, 2}}, at::kBFloat16},
    {"bfloat16_end_to_end",
     [](Config& config) { use_bfloat16(config, AmpMode::end_to_end); },
     {{2, 2}, {4, 2, 2}},
     at::kBFloat16},
};

class TensorParallelRun : public testing::TestWithParam<TensorCase> {};

TEST_P(TensorParallelRun, TwentyUpdatesAreThoseOfOneProcess) {
  constexpr int64_t kAll = 20;
  const Corpus corpus = corpus_with_validation();
  Config config = divided_run(corpus);
  GetParam().set(config);
  const Outcome one = outcome_on({1, 1}, config, corpus, kAll);
  EXPECT_LT(one.losses.back(), one.losses.front() - 0.1) << "or nothing is shown";
  for (const Shape& shape : GetParam().shapes)
    expect_close(outcome_on(shape, config, corpus, kAll), one, config, GetParam().type);
}

INSTANTIATE_TEST_SUITE_P(All, TensorParallelRun, testing::ValuesIn(kTensorCases),
                         [](const auto& test) { return std::string(test.param.name); });

// Codes are rounded anew, in the blocks of a part and again in those of the whole: neighbouring fractions of a block's largest magnitude
// are at most 1.6 % of it apart (ops/moments.h), half of which may be lost each time, of the largest magnitude itself too.
void expect_near_moments(const Checkpoint& a, const Checkpoint& b) {
  constexpr double kOfLargest = 0.03;
  for (const std::string_view slot : {"exp_avg", "exp_avg_sq"}) {
    const auto kind = may_be_negative(slot) ? ops::MomentKind::first : ops::MomentKind::second;
    const auto values_of = [&](const Checkpoint& checkpoint, size_t i) {
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
  const Corpus corpus = corpus_with_validation();
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
                                         std::tuple(1, StateDtype::int8)));

// Every process has what it would have alone, and of the rest an n-th.
TEST(TensorParallelMemory, GradientsAndMomentsAreDivided) {
  const Corpus corpus = corpus_with_validation();
  const Config config = divided_run(corpus);
  const auto values_of = [&](int64_t parts) {
    return flat_layout(parameter_table(largest_part(config.model, parts))).trained_size;
  };
  test::in_ranks(2, [&](distributed::Group& group) {
    group.arrange(2);
    run::Setup setup{config, corpus, describe_device(at::kCPU), Precision{}};
    setup.config.distributed.processes = setup.config.distributed.tensor_parallel = 2;
    setup.mesh = group.mesh();
    run::Run run(setup);
    EXPECT_LE(run.state().optimizer->bytes().device, 8 * values_of(2));
    EXPECT_LT(run.state().optimizer->bytes().device, 0.6 * 8 * static_cast<double>(values_of(1)));
    EXPECT_LE(run.model().parameters().layout().size, values_of(2));
  });
}

// Parts of what is summed are padded to equal lengths: here only those of the loss, the norms, and the gradients' last stretch.
TEST(TensorParallelBytes, AnUpdateSendsWhatThePlanSays) {
  constexpr int64_t kUpdatesCounted = 3;
  const Corpus corpus = some_corpus(400);  // no micro-batch of an epoch's end is missing
  Config config = divided_run(corpus);
  config.model.block_size = 64, config.training.batch_size = 4, config.training.gradient_accumulation_steps = 4;
  config.distributed.processes = 4, config.distributed.tensor_parallel = 2;
  test::in_ranks(4, [&](distributed::Group& group) {
    group.arrange(2);
    run::Setup setup{config, corpus, describe_device(at::kCPU), Precision{}};
    setup.mesh = group.mesh();
    run::Run run(setup);
    const int64_t before = setup.mesh.bytes_sent(), of_tensor_before = setup.mesh.tensor->bytes_sent();
    for (int64_t i = 0; i < kUpdatesCounted; ++i) EXPECT_TRUE(run.update([] { return false; }));
    const double sent = static_cast<double>(setup.mesh.bytes_sent() - before) / kUpdatesCounted,
                 planned = plan::sent_bytes(config, /*end_to_end=*/false, 4);
    EXPECT_NEAR(sent, planned, 0.01 * planned);
    const double of_tensor = static_cast<double>(setup.mesh.tensor->bytes_sent() - of_tensor_before) / kUpdatesCounted,
                 textbook =
                     2 * bytes_of_tensor_sums(config.model, {.size = 2}, /*tokens=*/4.0 * 64, {}, /*recomputed=*/false);
    EXPECT_NEAR(of_tensor, textbook, 3 * 2 * sizeof(float) + 1)
        << "beside the sums of activations only norms of parts are sent";
  });
}

}  // namespace
}  // namespace gpt::run
