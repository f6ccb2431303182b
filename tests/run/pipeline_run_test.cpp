// Runs that processes compute with a stage of the model each: the updates and checkpoints of one process, to the bit wherever the order of
// additions is the same.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "run/pipeline_run.h"
#include "support/long_test.h"

namespace gpt::run {
namespace {

struct PipelineCase {
  const char* name;
  std::function<void(Config&)> set;
  std::vector<Shape> shapes;
  bool is_exact = true;
  at::ScalarType type = at::kFloat;  // of the roundings
};

void PrintTo(const PipelineCase& pipeline_case, std::ostream* out) { *out << pipeline_case.name; }

void use_muon(Config& config, OptimizerKind kind) {
  untie(config);
  config.training.optimizer.kind = kind;
  config.training.schedule.learning_rate = 0.02;
}

std::function<void(Config&)> untied_with_zero(int64_t stage) {
  return [stage](Config& config) {
    untie(config);
    config.distributed.zero = stage;
  };
}

std::function<void(Config&)> gpt2_with_zero(int64_t stage) {
  return [stage](Config& config) {
    make_gpt2(config);
    config.distributed.zero = stage;
  };
}

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
    {"zero_1", untied_with_zero(1), {{4, 1, 2}}},
    {"zero_2", untied_with_zero(2), {{4, 1, 2}}},
    {"gpt2_in_stages_of_divided_layers_with_zero_2",
     [](Config& config) {
       make_gpt2(config);
       untie(config);
       config.distributed.zero = 2;
     },
     {{8, 2, 2}}},
    {"zero_3", untied_with_zero(3), {{4, 1, 2}}},
    {"gpt2_recomputed_in_stages_of_a_block_with_zero_3",
     [](Config& config) {
       make_gpt2(config);
       untie(config);
       config.training.execution.gradient_checkpointing = GradientCheckpointing::selective;
       config.distributed.zero = 3;
     },
     {{8, 1, 4}}},
    {"stages_of_divided_layers_with_zero_3", untied_with_zero(3), {{8, 2, 2}}},
    {"more_pipelines_than_micro_batches_with_zero_3",
     [](Config& config) {
       untie(config);
       config.distributed.zero = 3, config.training.gradient_accumulation_steps = 2;
     },
     {{6, 1, 2}}},
    {"muon", [](Config& config) { use_muon(config, OptimizerKind::muon); }, {{2, 1, 2}}},
    {"normuon_with_zero_1",
     [](Config& config) {
       use_muon(config, OptimizerKind::normuon);
       config.distributed.zero = 1;
     },
     {{4, 1, 2}}},
    {"muon_with_zero_2",
     [](Config& config) {
       use_muon(config, OptimizerKind::muon);
       config.distributed.zero = 2;
     },
     {{4, 1, 2}}},
    {"lanes",
     [](Config& config) {
       untie(config);
       config.distributed.lanes = 4;
     },
     {{2, 1, 2}}},
    {"lanes_with_zero_2",
     [](Config& config) {
       untie(config);
       config.distributed.lanes = 4, config.distributed.zero = 2;
       config.training.gradient_accumulation_steps = 4;
     },
     {{4, 1, 2}}},
    {"fewer_micro_batches_than_stages",
     [](Config& config) {
       untie(config);
       config.training.gradient_accumulation_steps = 2;
     },
     {{4, 1, 4}}},
    {"llama_tied", [](Config&) {}, {{2, 1, 2}, {3, 1, 3}, {4, 1, 2}}, false},
    {"gpt2_tied_with_zero_1", gpt2_with_zero(1), {{4, 1, 2}}, false},
    {"llama_tied_in_lanes", [](Config& config) { config.distributed.lanes = 4; }, {{4, 1, 2}}, false},
    {"gpt2_tied_with_zero_2", gpt2_with_zero(2), {{4, 1, 2}}, false},
    {"gpt2_tied_with_zero_3", gpt2_with_zero(3), {{4, 1, 2}}, false},
    {"bfloat16_end_to_end",
     [](Config& config) { use_bfloat16(config, AmpMode::end_to_end); },
     {{2, 1, 2}, {4, 1, 4}},
     false,
     at::kBFloat16},
    {"bfloat16_with_zero_3",
     [](Config& config) {
       use_bfloat16(config, AmpMode::end_to_end);
       config.distributed.zero = 3;
     },
     {{4, 1, 2}},
     false,
     at::kBFloat16},
};

class PipelineRun : public testing::TestWithParam<PipelineCase> {};

// The processes that divide the sequences add gradients in an order of their own, which is that of as many processes without stages.
TEST_P(PipelineRun, UpdatesAreThoseOfWholeModels) {
  if (GetParam().shapes.front().processes > 4) SKIP_UNLESS_ALL_TESTS();
  const int64_t all = compared_updates();
  const data::Corpus corpus = corpus_with_validation();
  Config config = pipelined_run(corpus);
  GetParam().set(config);
  std::map<std::pair<int64_t, int64_t>, Outcome> without_stages;
  for (const Shape& shape : GetParam().shapes) {
    const int64_t processes = shape.processes / shape.stages;
    Outcome& whole = without_stages[{processes, shape.tensor}];
    if (whole.losses.empty()) whole = outcome_on({processes, shape.tensor}, config, corpus, all);
    const Outcome piped = outcome_on(shape, config, corpus, all);
    EXPECT_LT(whole.losses.back(), whole.losses.front() - 0.1) << "or nothing is shown";
    if (!GetParam().is_exact) {
      expect_close(piped, whole, config, GetParam().type);
      continue;
    }
    expect_same_outcome(piped, whole);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PipelineRun, testing::ValuesIn(kPipelineCases),
                         [](const auto& test) { return std::string(test.param.name); });

// Sequences of about four documents, each of which repeats a word of its own.
data::Corpus some_documents() {
  data::Corpus corpus;
  corpus.tokenizer = tokenizer::make_tokenizer("bpe:300", "the quick brown fox jumps over the lazy dog and the cat");
  std::vector<int32_t> ids;
  for (int i = 0; i < 300; ++i) {
    ids.push_back(corpus.tokenizer->end_of_text().value());
    for (const int32_t id : corpus.tokenizer->encode(i % 3 == 0 ? " fox" : i % 3 == 1 ? " dog dog" : " cat cat cat"))
      ids.push_back(id);
  }
  corpus.vocab_size = corpus.tokenizer->vocab_size();
  corpus.train = corpus.validation = data::Tokens::from_ids(ids, corpus.vocab_size);
  corpus.sources = {corpus.train};
  return corpus;
}

// Where a document begins follows from the ids, of which most stages compute nothing.
TEST(PipelineDocuments, AreKeptApartInAllStages) {
  const data::Corpus corpus = some_documents();
  Config config = pipelined_run(corpus);
  untie(config);
  config.training.execution.gradient_checkpointing = GradientCheckpointing::selective;
  const Outcome joined = outcome_on({1, 1}, config, corpus, 6);
  config.data.document_mask = true;
  const Outcome one = outcome_on({1, 1}, config, corpus, 6), two = outcome_on({2, 1}, config, corpus, 6);
  EXPECT_NE(one.validation, joined.validation) << "or nothing is shown";
  expect_same_outcome(outcome_on({4, 1, 4}, config, corpus, 6), one);
  expect_same_outcome(outcome_on({4, 1, 2}, config, corpus, 6), two);
}

struct FrozenCase {
  const char* name;
  std::vector<std::string> frozen;
  std::function<void(Config&)> set = [](Config&) {};
  int64_t pipelines = 1;  // of four processes
};

void PrintTo(const FrozenCase& frozen_case, std::ostream* out) { *out << frozen_case.name; }

// One pipeline has a block in each stage.
const FrozenCase kFrozenCases[] = {
    {"what_precedes_the_third_block", {"wte", "h.0-1"}},
    {"all_but_a_part_of_the_third_block", {"wte", "h.0-1", "h.2.attn", "h.2.ln_1", "h.3", "ln_f", "lm_head"}},
    {"all_but_the_first_and_the_third_block", {"wte", "h.1", "h.3", "ln_f", "lm_head"}},
    {"all_blocks_of_gpt2", {"h"}, make_gpt2},
    {"tied_table_and_all_norms",
     {"wte", "h.*.ln_1", "h.*.ln_2"},
     [](Config& config) { config.model.tie_weights = true; }},
    {"recomputed_and_clipped_with_zero_1",
     {"wte", "h.0", "h.2.mlp"},
     [](Config& config) {
       config.training.execution.gradient_checkpointing = GradientCheckpointing::selective;
       config.training.optimizer.gradient_clip = 0.1, config.distributed.zero = 1;
     },
     2},
    {"all_but_adapters", {}, [](Config& config) { config.training.tuning.lora.rank = 2; }},
    {"all_but_adapters_of_values_with_zero_2",
     {},
     [](Config& config) {
       config.training.tuning.lora.rank = 2, config.training.tuning.lora.targets = {"v_proj"};
       config.distributed.zero = 2;
     },
     2},
    {"the_first_stage_with_zero_2",
     {"wte", "h.0-1", "h.2.attn"},
     [](Config& config) { config.distributed.zero = 2; },
     2},
};

class PipelineFrozen : public testing::TestWithParam<FrozenCase> {};

// Stages of which nothing is trained pass gradients on to those that are, and none to others.
TEST_P(PipelineFrozen, ParametersStayAsTheyAreInWholeModels) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = pipelined_run(corpus);
  untie(config);
  config.training.tuning.freeze = GetParam().frozen;
  GetParam().set(config);
  const int64_t pipelines = GetParam().pipelines;
  const Outcome whole = outcome_on({pipelines, 1}, config, corpus, 6);
  EXPECT_LT(whole.losses.back(), whole.losses.front()) << "or nothing is shown";
  expect_same_outcome(outcome_on({4, 1, 4 / pipelines}, config, corpus, 6), whole);
}

// Frozen ones have no float32 values beside their copies, whichever process writes them.
TEST(PipelineFrozenCopies, AreWrittenAsTheyAreKept) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = pipelined_run(corpus);
  use_bfloat16(config, AmpMode::end_to_end);
  config.training.tuning.freeze = {"wte", "h.0", "h.2.mlp"};
  const Outcome one = outcome_on({1, 1}, config, corpus, 2);
  for (const Shape& shape : {Shape{4, 1, 4}, Shape{4, 1, 2}, Shape{4, 2, 2}}) {
    const Outcome piped = outcome_on(shape, config, corpus, 2);
    for (size_t i = 0; i < one.checkpoint.model.size(); ++i) {
      const auto& [name, value] = one.checkpoint.model[i];
      const at::Tensor& of_stage = piped.checkpoint.model[i].second;
      EXPECT_EQ(of_stage.scalar_type(), value.scalar_type()) << name;
      EXPECT_TRUE(value.scalar_type() == at::kFloat || of_stage.equal(value)) << name;
    }
    expect_same_state(outcome_on({1, 1}, config, corpus, 0, &piped.checkpoint).checkpoint, piped.checkpoint);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PipelineFrozen, testing::ValuesIn(kFrozenCases),
                         [](const auto& test) { return std::string(test.param.name); });

class PipelineState : public testing::TestWithParam<int64_t> {};

// What one arrangement has written others read, and write again as it was; the arrangement itself goes on as if it had not stopped.
TEST_P(PipelineState, IsReadByAnyOtherArrangement) {
  if (GetParam() < 3) SKIP_UNLESS_ALL_TESTS();
  const data::Corpus corpus = corpus_with_validation();
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

INSTANTIATE_TEST_SUITE_P(All, PipelineState, testing::Values(0, 2, 3));

class MeshState : public testing::TestWithParam<int64_t> {};

TEST_P(MeshState, IsThatOfOneProcess) {
  if (GetParam() < 3) SKIP_UNLESS_ALL_TESTS();
  const data::Corpus corpus = corpus_with_validation();
  Config config = pipelined_run(corpus);
  config.distributed.zero = GetParam();
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

INSTANTIATE_TEST_SUITE_P(All, MeshState, testing::Values(1, 3));

// What one pipeline computes with lanes several do, to the bit; a tied table too.
TEST(PipelineLanes, GiveAnyNumberOfPipelinesTheSameBits) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = pipelined_run(corpus);
  config.distributed.lanes = 4;
  const Outcome one = outcome_on({2, 1, 2}, config, corpus, 6);
  for (const int64_t pipelines : {2, 4}) expect_same_outcome(outcome_on({2 * pipelines, 1, 2}, config, corpus, 6), one);
}

}  // namespace
}  // namespace gpt::run
