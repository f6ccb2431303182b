// Runs that processes compute with a stage of the model each: the updates and checkpoints of one process, to the bit wherever the order of
// additions is the same.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <ostream>
#include <string>
#include <vector>

#include "gpt/layout/cut.h"
#include "gpt/plan/sent_bytes.h"
#include "run/mesh_run.h"

namespace gpt::run {
namespace {

// Five micro-batches, so that of two groups one has three and the other has two, and four stages are never all busy with the second.
Config pipelined_run(const Corpus& corpus) {
  Config config = divided_run(corpus);
  config.model.n_layer = 4;
  config.training.gradient_accumulation_steps = 5;
  return config;
}

struct PipelineCase {
  const char* name;
  std::function<void(Config&)> set;
  std::vector<Shape> shapes;
  bool is_exact = true;
  at::ScalarType type = at::kFloat;  // of the roundings
};

void PrintTo(const PipelineCase& pipeline_case, std::ostream* out) { *out << pipeline_case.name; }

void untie(Config& config) { config.model.tie_weights = false; }

const PipelineCase kPipelineCases[] = {
    {"llama_untied", untie, {{2, 1, 2}, {3, 1, 3}, {4, 1, 4}, {4, 1, 2}}},
    {"gpt2_untied",
     [](Config& config) {
       make_gpt2(config);
       untie(config);
     },
     {{2, 1, 2}, {4, 1, 4}}},
    {"gpt2_untied_without_dropout",
     [](Config& config) {
       make_gpt2(config);
       untie(config);
       config.model.dropout = 0;
     },
     {{3, 1, 3}}},
    {"stages_of_divided_layers",
     [](Config& config) {
       untie(config);
       config.training.optimizer.gradient_clip = 0.1;
       config.training.execution.gradient_checkpointing = GradientCheckpointing::selective;
     },
     {{4, 2, 2}}},
    {"gpt2_in_stages_of_divided_layers_with_zero_1",
     [](Config& config) {
       make_gpt2(config);
       untie(config);
       config.distributed.zero = 1;
     },
     {{8, 2, 2}}},
    {"groups_of_queries_windows_and_smoothing",
     [](Config& config) {
       untie(config);
       config.model.n_head = 8, config.model.attention_window = 5;
       config.training.label_smoothing = 0.1;
     },
     {{4, 1, 4}}},
    {"recomputed_from_attention_on",
     [](Config& config) {
       untie(config);
       config.training.execution.gradient_checkpointing = GradientCheckpointing::selective;
     },
     {{2, 1, 2}}},
    {"recomputed_whole",
     [](Config& config) {
       untie(config);
       config.training.execution.gradient_checkpointing = GradientCheckpointing::block;
     },
     {{3, 1, 3}}},
    {"clipped_with_moments_of_8_bits",
     [](Config& config) {
       untie(config);
       config.training.optimizer.gradient_clip = 0.1, config.training.optimizer.state_dtype = StateDtype::int8;
     },
     {{2, 1, 2}}},
    {"zero_1",
     [](Config& config) {
       untie(config);
       config.distributed.zero = 1;
     },
     {{4, 1, 2}}},
    {"fewer_micro_batches_than_stages",
     [](Config& config) {
       untie(config);
       config.training.gradient_accumulation_steps = 2;
     },
     {{4, 1, 4}}},
    {"llama_tied", [](Config&) {}, {{2, 1, 2}, {3, 1, 3}, {4, 1, 2}}, false},
    {"gpt2_tied_with_zero_1",
     [](Config& config) {
       make_gpt2(config);
       config.distributed.zero = 1;
     },
     {{4, 1, 2}},
     false},
    {"bfloat16_end_to_end",
     [](Config& config) { use_bfloat16(config, AmpMode::end_to_end); },
     {{2, 1, 2}, {4, 1, 4}},
     false,
     at::kBFloat16},
};

class PipelineRun : public testing::TestWithParam<PipelineCase> {};

// The processes that divide the sequences add gradients in an order of their own, which is that of as many processes without stages.
TEST_P(PipelineRun, TwentyUpdatesAreThoseOfWholeModels) {
  constexpr int64_t kAll = 20;
  const Corpus corpus = corpus_with_validation();
  Config config = pipelined_run(corpus);
  GetParam().set(config);
  for (const Shape& shape : GetParam().shapes) {
    const Outcome whole = outcome_on({shape.processes / shape.stages, shape.tensor}, config, corpus, kAll),
                  piped = outcome_on(shape, config, corpus, kAll);
    EXPECT_LT(whole.losses.back(), whole.losses.front() - 0.1) << "or nothing is shown";
    if (!GetParam().is_exact) {
      expect_close(piped, whole, config, GetParam().type);
      continue;
    }
    EXPECT_EQ(piped.losses, whole.losses);
    EXPECT_EQ(piped.norms, whole.norms);
    EXPECT_EQ(piped.validation, whole.validation);
    expect_same_state(piped.checkpoint, whole.checkpoint);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PipelineRun, testing::ValuesIn(kPipelineCases),
                         [](const auto& test) { return std::string(test.param.name); });

class PipelineState : public testing::TestWithParam<int64_t> {};

// What one arrangement has written others read, and write again as it was; the arrangement itself goes on as if it had not stopped.
TEST_P(PipelineState, IsReadByAnyOtherArrangement) {
  const Corpus corpus = corpus_with_validation();
  Config config = pipelined_run(corpus);
  config.distributed.zero = GetParam();
  const Outcome written = outcome_on({4, 1, 2}, config, corpus, 3);
  const Outcome fresh = outcome_on({1, 1}, config, corpus, 0), of_stages = outcome_on({4, 1, 4}, config, corpus, 0);
  expect_equal(fresh.checkpoint.model, of_stages.checkpoint.model);  // the weights that a run begins with
  for (const Shape& shape : {Shape{4, 1, 2}, Shape{3, 1, 3}, Shape{4, 1, 4}, Shape{1, 1}, Shape{2, 1}, Shape{2, 2}}) {
    const Outcome read = outcome_on(shape, config, corpus, 0, &written.checkpoint);
    expect_same_state(read.checkpoint, written.checkpoint);
  }
  const Outcome straight = outcome_on({4, 1, 2}, config, corpus, 5),
                resumed = outcome_on({4, 1, 2}, config, corpus, 2, &written.checkpoint);
  expect_same_state(resumed.checkpoint, straight.checkpoint);
  EXPECT_EQ(resumed.norms.back(), straight.norms.back());
}

INSTANTIATE_TEST_SUITE_P(All, PipelineState, testing::Values(0, 1));

// The parts of a layer are brought together in the first process of each stage, which writes them.
TEST(MeshState, IsThatOfOneProcess) {
  const Corpus corpus = corpus_with_validation();
  Config config = pipelined_run(corpus);
  config.distributed.zero = 1;
  const Shape mesh{8, 2, 2};
  const Outcome written = outcome_on(mesh, config, corpus, 3);
  for (const Shape& shape : {Shape{1, 1}, Shape{4, 2, 2}, Shape{3, 1, 3}}) {
    const Outcome read = outcome_on(shape, config, corpus, 0, &written.checkpoint);
    expect_same_state(read.checkpoint, written.checkpoint);
  }
  const Outcome straight = outcome_on(mesh, config, corpus, 5),
                resumed = outcome_on(mesh, config, corpus, 2, &written.checkpoint);
  expect_same_state(resumed.checkpoint, straight.checkpoint);
  EXPECT_EQ(resumed.norms.back(), straight.norms.back());
}

// Calls look(run, stage) in each process of a mesh, after so many updates.
template <typename Look>
void in_mesh(const Shape& shape, const Config& config, const Corpus& corpus, int64_t updates, const Look& look) {
  test::in_ranks(shape.processes, [&](distributed::Group& group) {
    group.arrange(shape.tensor, shape.stages);
    const DeviceInfo device = describe_device(at::kCPU);
    Setup setup{config, corpus, device, resolve_precision(config.training.precision, device)};
    DistributedConfig& distributed = setup.config.distributed;
    distributed.processes = shape.processes;
    distributed.tensor_parallel = shape.tensor, distributed.pipeline_parallel = shape.stages;
    setup.mesh = group.mesh();
    Run run(setup);
    for (int64_t i = 0; i < updates; ++i) EXPECT_TRUE(run.update([] { return false; }));
    look(run, setup.mesh.pipeline.stages->rank());
  });
}

// A value of 16 bits is rounded at random, by its place in the buffer of a process.
TEST(PipelineTiedTable, IsTheSameAtBothEnds) {
  const Corpus corpus = corpus_with_validation();
  Config config = pipelined_run(corpus);
  use_bfloat16(config, AmpMode::end_to_end);
  config.training.precision.master_weights = false;
  std::vector<at::Tensor> tables(3);
  in_mesh({3, 1, 3}, config, corpus, 4, [&](run::Run& run, int64_t stage) {
    const Parameter table = run.model().parameters().weight(ParameterRole::token_embedding, -1);
    EXPECT_EQ(table.defined(), stage != 1);
    if (table.defined()) tables[static_cast<size_t>(stage)] = table.value().detach().clone();
  });
  EXPECT_TRUE(tables[0].equal(tables[2]));
}

TEST(PipelineMemory, EachStageHasItsOwnBlocksAlone) {
  const Corpus corpus = corpus_with_validation();
  const Config config = pipelined_run(corpus);
  in_mesh({4, 1, 4}, config, corpus, 1, [&](run::Run& run, int64_t stage) {
    const auto rows = cut(parameter_table(config.model), config.model, {.stage = stage, .stages = 4});
    const int64_t values = flat_layout(rows).size;
    EXPECT_LT(values, flat_layout(parameter_table(config.model)).size / 2);
    EXPECT_EQ(run.model().parameters().layout().size, values);
    EXPECT_EQ(run.model().parameters().gradient_buffer(0).numel(), values);
    EXPECT_LE(run.state().optimizer->bytes().device, 8 * values);
  });
}

class PipelineBytes : public testing::TestWithParam<Shape> {};

// For each micro-batch B T C values cross each boundary each way, from each process of a stage.
TEST_P(PipelineBytes, OfAnUpdateAreThoseOfThePlan) {
  const auto [processes, tensor, stages] = GetParam();
  constexpr int64_t kUpdatesCounted = 3;
  const Corpus corpus = some_corpus(400);  // no micro-batch of an epoch's end is missing
  Config config = pipelined_run(corpus);
  config.training.gradient_accumulation_steps = 4;
  config.distributed.processes = processes;
  config.distributed.tensor_parallel = tensor, config.distributed.pipeline_parallel = stages;
  const double of_boundary = kUpdatesCounted * 4.0 * 3 * 16 * 32 * sizeof(float);
  double most = 0;
  std::mutex mutex;
  in_mesh(GetParam(), config, corpus, 0, [&, last = stages - 1](run::Run& run, int64_t stage) {
    const distributed::Mesh& mesh = run.setup().mesh;
    const int64_t before = mesh.bytes_sent();
    for (int64_t i = 0; i < kUpdatesCounted; ++i) EXPECT_TRUE(run.update([] { return false; }));
    EXPECT_EQ(static_cast<double>(mesh.pipeline.after.forward->bytes_sent()), stage < last ? of_boundary : 0);
    EXPECT_EQ(static_cast<double>(mesh.pipeline.before.backward->bytes_sent()), stage > 0 ? of_boundary : 0);
    const std::lock_guard lock(mutex);
    most = std::max(most, static_cast<double>(mesh.bytes_sent() - before) / kUpdatesCounted);
  });
  const double planned = plan::sent_bytes(config, /*end_to_end=*/false, processes);
  EXPECT_NEAR(most, planned, 0.02 * planned);
}

INSTANTIATE_TEST_SUITE_P(All, PipelineBytes, testing::Values(Shape{3, 1, 3}, Shape{4, 2, 2}));

}  // namespace
}  // namespace gpt::run
