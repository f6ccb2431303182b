// What each stage of a model keeps and sends: its own blocks, and activations; and a table that two
// stages have.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "gpt/layout/cut.h"
#include "gpt/plan/sent_bytes.h"
#include "run/pipeline_run.h"

namespace gpt::run {
namespace {

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

struct BytesCase {
  Shape shape;
  std::vector<std::string> frozen = {};
  int64_t first_trained = 0;  // stage
};

class PipelineBytes : public testing::TestWithParam<BytesCase> {};

// For each micro-batch B T C values cross each boundary each way, from each process of a stage; none go back to where nothing is trained.
TEST_P(PipelineBytes, OfAnUpdateAreThoseOfThePlan) {
  const auto& [shape, frozen, first_trained] = GetParam();
  const auto [processes, tensor, stages] = shape;
  constexpr int64_t kUpdatesCounted = 3;
  const Corpus corpus = some_corpus(400);  // no micro-batch of an epoch's end is missing
  Config config = pipelined_run(corpus);
  config.training.gradient_accumulation_steps = 4;
  config.training.freeze = frozen;
  config.distributed.processes = processes;
  config.distributed.tensor_parallel = tensor, config.distributed.pipeline_parallel = stages;
  const double of_boundary = kUpdatesCounted * 4.0 * 3 * 16 * 32 * sizeof(float);
  double most = 0;
  std::mutex mutex;
  in_mesh(shape, config, corpus, 0, [&, last = stages - 1, first = first_trained](run::Run& run, int64_t stage) {
    const distributed::Mesh& mesh = run.setup().mesh;
    const int64_t before = mesh.bytes_sent();
    for (int64_t i = 0; i < kUpdatesCounted; ++i) EXPECT_TRUE(run.update([] { return false; }));
    EXPECT_EQ(static_cast<double>(mesh.pipeline.after.forward->bytes_sent()), stage < last ? of_boundary : 0);
    EXPECT_EQ(static_cast<double>(mesh.pipeline.before.backward->bytes_sent()), stage > first ? of_boundary : 0);
    const std::lock_guard lock(mutex);
    most = std::max(most, static_cast<double>(mesh.bytes_sent() - before) / kUpdatesCounted);
  });
  const double planned = plan::sent_bytes(config, /*end_to_end=*/false, processes);
  EXPECT_NEAR(most, planned, 0.02 * planned);
}

INSTANTIATE_TEST_SUITE_P(All, PipelineBytes,
                         testing::Values(BytesCase{{3, 1, 3}}, BytesCase{{4, 2, 2}},
                                         BytesCase{{4, 1, 4}, {"wte", "h.0-1"}, 2}));

}  // namespace
}  // namespace gpt::run
