// What each stage of a model keeps and sends: its own blocks, their gradients divided among the pipelines, and activations; and a table that two
// stages have.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "gpt/layout/cut.h"
#include "gpt/plan/estimates.h"
#include "gpt/plan/sent_bytes.h"
#include "run/pipeline_run.h"

namespace gpt::run {
namespace {

// Processes of two pipelines of three stages whose table, which the first and the last stage have, is another than in the first process.
std::vector<int64_t> with_other_tables(const Config& config, const data::Corpus& corpus) {
  std::vector<at::Tensor> tables(6);
  in_mesh({6, 1, 3}, config, corpus, 4, [&](run::Run& run, int64_t stage) {
    const parameters::Parameter table = run.model().parameters().weight(layout::ParameterRole::token_embedding, -1);
    EXPECT_EQ(table.defined(), stage != 1);
    const auto rank = static_cast<size_t>(run.setup().mesh.all->rank());
    if (table.defined()) tables[rank] = table.value().detach().clone();
  });
  std::vector<int64_t> others;
  for (size_t rank = 0; rank < tables.size(); ++rank)
    if (tables[rank].defined() && !tables[rank].equal(tables[0])) others.push_back(static_cast<int64_t>(rank));
  return others;
}

// A value of 16 bits is rounded at random, by its place in the buffer of a process.
TEST(PipelineTiedTable, IsTheSameAtBothEnds) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = pipelined_run(corpus);
  use_bfloat16(config, AmpMode::end_to_end);
  config.training.precision.master_weights = false;
  for (const int64_t zero : {0, 1, 2, 3}) {
    config.distributed.zero = zero;
    EXPECT_EQ(with_other_tables(config, corpus), std::vector<int64_t>()) << zero;
  }
}

// Each process of both ends updates a part, from the sums of both.
TEST(PipelineTiedTable, IsUpdatedAlikeAtBothEnds) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = pipelined_run(corpus);
  for (const int64_t zero : {2, 3}) {
    config.distributed.zero = zero;
    EXPECT_EQ(with_other_tables(config, corpus), std::vector<int64_t>()) << zero;
  }
}

// Blocks of a segment each, of which a stage has two, and a table that both ends have.
Config run_of_segments(const data::Corpus& corpus) {
  Config config = pipelined_run(corpus);
  config.model.n_embd = 512, config.model.n_hidden = 128;
  config.training.batch_size = 1, config.training.gradient_accumulation_steps = 4;
  config.distributed.zero = 2;
  return config;
}

TEST(PipelineZero2, SumsOfSegmentsAreThoseOfWholeModels) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = run_of_segments(corpus);
  expect_close(outcome_on({4, 1, 2}, config, corpus, 2), outcome_on({2, 1}, config, corpus, 2), config, at::kFloat);
  untie(config);
  expect_same_outcome(outcome_on({4, 1, 2}, config, corpus, 2), outcome_on({2, 1}, config, corpus, 2));
}

// Where each micro-batch of an update is another pipeline's, what arrives of it is added in the same order.
TEST(PipelineZero2, OfAMicroBatchEachIsZero0) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = pipelined_run(corpus);
  untie(config);
  config.training.gradient_accumulation_steps = 2;
  const Outcome undivided = outcome_on({2, 1}, config, corpus, 4);
  config.distributed.zero = 2;
  expect_same_outcome(outcome_on({4, 1, 2}, config, corpus, 4), undivided);
}

// What a process keeps the sums of at one end its neighbour of the same pipeline keeps at the other.
TEST(PipelineZero2, ATiedTableIsCutAlikeAtBothEnds) {
  ModelConfig model;
  model.n_layer = 6, model.n_embd = 512, model.vocab_size = 10000, model.position = Position::learned;
  DistributedConfig config;
  config.zero = 2;
  test::in_ranks(4, [&](distributed::Group& group) {
    group.arrange(/*tensor=*/1, /*stages=*/2);
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::muon}) {
      const parallel::Division division(group.mesh(), config, {.kind = kind});
      const auto of_table = [&](int64_t stage) {
        const std::vector<layout::ParameterRow> rows =
            layout::cut(layout::parameter_table(model), model, {.stage = stage, .stages = 2});
        const layout::FlatLayout layout = layout::flat_layout(rows);
        const int64_t begin = layout.trained_size - layout::aligned_end(10048 * 512);
        std::vector<int64_t> bounds;
        for (const layout::FlatSpan& span : division.spans(rows, layout))
          if (span.end > begin) bounds.insert(bounds.end(), {span.begin - begin, span.end - begin});
        return bounds;
      };
      EXPECT_EQ(of_table(0), of_table(1));
      EXPECT_GT(of_table(0).size(), 2) << "or it is sent in one stretch";
    }
    group.communicator()->sum(at::zeros({1}));  // nobody leaves before all have come
  });
}

// Gradients of A micro-batches in each of n pipelines go from a process to those that keep their sums, and what it keeps of the weights
// back: (A G + W)(n - 1) / n bytes, and 2 (n - 1) / n of the norms of each 256 and the loss.
TEST(PipelineZero2, GradientsOfEveryMicroBatchAreSentOnce) {
  constexpr int64_t kStages = 2, kPipelines = 2, kMicroBatches = 2, kUpdatesCounted = 2;
  const data::Corpus corpus = some_corpus(400);
  Config config = run_of_segments(corpus);
  config.distributed.processes = kStages * kPipelines, config.distributed.pipeline_parallel = kStages;
  std::mutex mutex;
  std::vector<double> sent(kStages), values(kStages);  // of all pipelines
  double most = 0;
  in_mesh({kStages * kPipelines, 1, kStages}, config, corpus, 1, [&](run::Run& run, int64_t stage) {
    const distributed::Mesh& mesh = run.setup().mesh;
    run.model().layer_weights()->await_all();  // those of the update before
    const int64_t before = mesh.data->bytes_sent(), all_before = mesh.bytes_sent();
    for (int64_t i = 0; i < kUpdatesCounted; ++i) EXPECT_TRUE(run.update([] { return false; }));
    run.model().layer_weights()->await_all();
    const std::lock_guard lock(mutex);
    sent[static_cast<size_t>(stage)] += static_cast<double>(mesh.data->bytes_sent() - before) / kUpdatesCounted;
    most = std::max(most, static_cast<double>(mesh.bytes_sent() - all_before) / kUpdatesCounted);
    values[static_cast<size_t>(stage)] = static_cast<double>(run.model().parameters().layout().trained_size);
    EXPECT_LE(run.step().gradient_bytes(), 4 * (run.model().parameters().layout().trained_size / kPipelines + 256));
  });
  for (size_t stage = 0; stage < kStages; ++stage) {
    const double bytes = values[stage] * sizeof(float), norms = bytes / 256;
    EXPECT_NEAR(sent[stage], ((kMicroBatches + 1) * bytes + 2 * norms) * (kPipelines - 1), 1e-4 * bytes) << stage;
  }
  const double planned = plan::sent_bytes(config, /*end_to_end=*/false, config.distributed.processes);
  EXPECT_NEAR(most, planned, 0.001 * planned);
}

// Each of A micro-batches needs the weights of a stage's L blocks twice. They are there still for the last block where a backward pass follows
// a forward pass, and for the first one where it is the other way round: 1 + 2 (A - w) times, with w micro-batches ahead.
TEST(PipelineZero3, WeightsComeTogetherForEachPassThatNeedsThem) {
  constexpr int64_t kStages = 2, kPipelines = 2, kMicroBatches = 3, kUpdatesCounted = 2;
  const data::Corpus corpus = some_corpus(400);
  Config config = run_of_segments(corpus);
  config.distributed.zero = 3, config.training.gradient_accumulation_steps = kPipelines * kMicroBatches;
  config.model.n_layer = 5;
  config.distributed.processes = kStages * kPipelines, config.distributed.pipeline_parallel = kStages;
  std::mutex mutex;
  double most = 0;
  in_mesh({kStages * kPipelines, 1, kStages}, config, corpus, 1, [&](run::Run& run, int64_t stage) {
    const distributed::Mesh& mesh = run.setup().mesh;
    const parameters::Parameters& parameters = run.model().parameters();
    const int64_t before = mesh.data->bytes_sent(), all_before = mesh.bytes_sent();
    for (int64_t i = 0; i < kUpdatesCounted; ++i) EXPECT_TRUE(run.update([] { return false; }));
    const layout::LayerSpan layers = run.model().layers();
    const auto& [begin, end] = parameters.divided_values()->blocks().back();
    const int64_t ahead = kStages - stage,
                  passes = 2 * kMicroBatches * layers.count() - (1 + 2 * (kMicroBatches - ahead)),
                  size = parameters.layout().size, outside = size - (end - begin) * layers.count();
    const auto halves = static_cast<double>(passes * (end - begin) + outside + kMicroBatches * size) / kPipelines,
               norms = static_cast<double>(size) / 256, sent = static_cast<double>(mesh.data->bytes_sent() - before);
    EXPECT_GT(layers.count(), 1);
    EXPECT_NEAR(sent / kUpdatesCounted / sizeof(float), halves + norms, 1e-4 * halves) << stage;
    const std::lock_guard lock(mutex);
    most = std::max(most, static_cast<double>(mesh.bytes_sent() - all_before) / kUpdatesCounted);
  });
  const double planned = plan::sent_bytes(config, /*end_to_end=*/false, config.distributed.processes);
  EXPECT_NEAR(most, planned, 0.001 * planned);
}

TEST(PipelineMemory, EachStageHasItsOwnBlocksAlone) {
  const data::Corpus corpus = corpus_with_validation();
  const Config config = pipelined_run(corpus);
  in_mesh({4, 1, 4}, config, corpus, 1, [&](run::Run& run, int64_t stage) {
    const auto rows = layout::cut(layout::parameter_table(config.model), config.model, {.stage = stage, .stages = 4});
    const int64_t values = layout::flat_layout(rows).size;
    EXPECT_LT(values, layout::flat_layout(layout::parameter_table(config.model)).size / 2);
    EXPECT_EQ(run.model().parameters().layout().size, values);
    EXPECT_EQ(run.model().parameters().gradient_buffer(0).numel(), values);
    EXPECT_LE(run.state().optimizer->bytes().device, 8 * values);
  });
}

// Half of a stage's blocks, and memory for two of them. The first stage needs most.
TEST(PipelineMemory, WeightsOfAStageAreDividedFurther) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = pipelined_run(corpus);
  config.model.n_layer = 8, config.distributed.zero = 3;
  config.distributed.processes = 4, config.distributed.pipeline_parallel = 2;
  const plan::ActivationForm form =
      plan::activation_form(config.model, config.training, config.distributed, device::describe_device(at::kCPU), {});
  const double planned = plan::estimate_memory(config.model, config.training, form).weights;
  in_mesh({4, 1, 2}, config, corpus, 1, [&](run::Run& run, int64_t stage) {
    const parameters::Parameters& parameters = run.model().parameters();
    const auto [begin, end] = parameters.divided_values()->blocks().back();
    const double rooms = 2.0 * static_cast<double>((end - begin) * sizeof(float));
    if (stage > 0) return;
    const double of_alignment =
        static_cast<double>(run.model().layers().count() * layout::kParameterAlignment * sizeof(float)) / 2;
    EXPECT_NEAR(static_cast<double>(parameters.value_bytes()) + rooms, planned, of_alignment);
  });
}

struct BytesCase {
  Shape shape;
  std::vector<std::string> frozen = {};
  int64_t first_trained = 0;  // stage
};

class PipelineBytes : public testing::TestWithParam<BytesCase> {};

// For each micro-batch B T C values cross each boundary each way, of which each process of a stage sends those of its rows; none go back to
// where nothing is trained.
TEST_P(PipelineBytes, OfAnUpdateAreThoseOfThePlan) {
  const auto& [shape, frozen, first_trained] = GetParam();
  const auto [processes, tensor, stages] = shape;
  constexpr int64_t kUpdatesCounted = 3;
  const data::Corpus corpus = some_corpus(400);  // no micro-batch of an epoch's end is missing
  Config config = pipelined_run(corpus);
  config.training.gradient_accumulation_steps = 4;
  config.training.tuning.freeze = frozen;
  config.distributed.processes = processes;
  config.distributed.tensor_parallel = tensor, config.distributed.pipeline_parallel = stages;
  const double of_boundary = kUpdatesCounted * 4.0 * 3 * 16 * 32 * sizeof(float) / static_cast<double>(tensor);
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
