// A run that several processes compute is the run of one.
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/scratch_folder.h"
#include "distributed/local_group.h"
#include "gpt/checkpoint/divided_save.h"
#include "gpt/config/batch.h"
#include "gpt/layout/layer_ends.h"
#include "gpt/run/interruptions.h"
#include "gpt/run/run.h"
#include "support/long_test.h"
#include "train/tiny_run.h"

namespace gpt::run {
namespace {

// 5 micro-batches an update and 3 in the last of an epoch, so that processes have different numbers of them, and some none.
Config config_with(const data::Corpus& corpus, const DistributedConfig& distributed) {
  Config config = tiny_config(corpus);
  config.training.batch_size = 3;
  config.training.gradient_accumulation_steps = 5;
  config.training.schedule.max_steps = 50;
  config.training.schedule.warmup_steps = 5;
  config.training.schedule.learning_rate = 1e-2;
  config.training.precision.use_amp = false;
  config.distributed = distributed;
  return config;
}

DistributedConfig with_lanes(int64_t lanes) {
  DistributedConfig config;
  config.lanes = lanes;
  return config;
}

DistributedConfig sent_in(ReduceDtype type) {
  DistributedConfig config;
  config.reduce_dtype = type;
  return config;
}

struct Result {
  parameters::NamedTensors weights;
  std::vector<double> losses, norms;
  Evaluation evaluation;
};

// To each value of one process the others add zeros.
parameters::NamedTensors whole_weights(const checkpoint::Checkpoint& captured, distributed::Communicator& ranks) {
  parameters::NamedTensors weights;
  for (const auto& [name, value] : captured.model) {
    if (!value.is_meta()) {
      weights.emplace_back(name, value.detach().clone());
      continue;
    }
    const at::Tensor whole = at::zeros(value.sizes());
    for (const checkpoint::TensorPart& part : captured.parts.at("model/" + name))
      if (part.values.defined()) whole.view(-1).slice(0, part.begin, part.end).copy_(part.values);
    ranks.sum(whole);
    weights.emplace_back(name, whole);
  }
  return weights;
}

Result result_of(const Setup& setup, int64_t updates) {
  Run run(setup);
  Result result;
  for (int64_t i = 0; i < updates; ++i) {
    EXPECT_TRUE(run.update([] { return false; }));
    result.losses.push_back(run.step().loss().item<double>());
    result.norms.push_back(run.step().grad_norm().item<double>());
  }
  result.weights = whole_weights(run.state().capture(), *setup.mesh.all);
  result.evaluation = run.evaluator().run(run.model(), [](double) { return false; });
  return result;
}

data::Corpus even_corpus() {
  data::Corpus corpus = some_corpus();
  corpus.validation = corpus.train;
  return corpus;
}

// Its sequences have so different losses that an evaluation draws again, and there are enough to draw from.
data::Corpus uneven_corpus() {
  data::Corpus corpus = some_corpus(400);
  std::vector<int32_t> ids;
  const int32_t common = corpus.train[4], rare = static_cast<int32_t>(corpus.vocab_size) - 1;
  for (int64_t i = 0; i < 40000; ++i) ids.push_back(i / 8 % 3 == 0 ? rare : common);
  corpus.validation = data::Tokens::from_ids(ids, corpus.vocab_size);
  return corpus;
}

// What each process has at the end.
std::vector<Result> results_of(int64_t processes, const DistributedConfig& distributed, int64_t updates,
                               const data::Corpus& corpus = even_corpus()) {
  const Config config = config_with(corpus, distributed);
  std::vector<Result> results(static_cast<size_t>(processes));
  test::in_ranks(processes, [&](const distributed::Group& group) {
    Setup setup{config, corpus, device::describe_device(at::kCPU), device::Precision{}};
    setup.mesh = group.mesh();
    results[static_cast<size_t>(group.ranks().rank)] = result_of(setup, updates);
  });
  return results;
}

DistributedConfig with_zero(int64_t stage, DistributedConfig config = {}) {
  config.zero = stage;
  return config;
}

void expect_all(const std::vector<Result>& results, const Result& one, const std::string& what) {
  for (const Result& result : results) {
    expect_equal(result.weights, one.weights);
    EXPECT_EQ(result.losses, one.losses) << what;
    EXPECT_EQ(result.norms, one.norms) << what;
    EXPECT_EQ(result.evaluation.loss, one.evaluation.loss) << what;
  }
}

TEST(DividedRun, LanesGiveTheSameBitsOnAnyNumberOfProcesses) {
  constexpr int64_t kAll = 50;  // more than an epoch
  const Result one = results_of(1, with_lanes(4), kAll)[0];
  for (const DistributedConfig& distributed : {with_lanes(4), with_zero(1, with_lanes(4))}) {
    for (const int64_t processes : {2, 4})
      expect_all(results_of(processes, distributed, kAll), one, fmt::format("{} processes", processes));
  }
}

// ZeRO 2 and 3 add what each micro-batch has computed, so that a lane may have one of them at most. Five of them leave lanes, and rounds of
// all processes, without any.
TEST(DividedRun, DividedGradientsAndWeightsHaveTheBitsOfWholeOnes) {
  constexpr int64_t kAll = 8;
  const Result one = results_of(1, with_lanes(8), kAll)[0];
  for (const int64_t zero : {2, 3})
    for (const int64_t processes : {2, 4, 8})
      expect_all(results_of(processes, with_zero(zero, with_lanes(8)), kAll), one,
                 fmt::format("{} processes, zero {}", processes, zero));
}

// More micro-batches than lanes are added up in another order than by one process alone, and by all in the same.
TEST(DividedRun, DividedGradientsOfSeveralRoundsDifferByRounding) {
  constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
  const Result one = results_of(1, {}, 1)[0];
  const std::vector<Result> two = results_of(2, with_zero(2), 1);
  expect_all(results_of(2, with_zero(3), 1), two[0], "zero 3");
  for (const Result& result : two) {
    expect_equal(result.weights, two[0].weights);
    EXPECT_NEAR(result.losses[0], one.losses[0], 5 * kEpsilon * one.losses[0]);  // five additions
    EXPECT_NEAR(result.norms[0], one.norms[0], 10 * kEpsilon * one.norms[0]);    // of every value of it
  }
}

// What the processes have saved together, and the bytes of the optimizer's state that all of them have between them.
struct Saved {
  checkpoint::Checkpoint checkpoint;
  std::vector<double> norms;
  int64_t state_bytes = 0;
};

void train_and_save(const Setup& setup, const Beginning& begins, int64_t updates, const std::string& path, Saved& saved,
                    std::mutex& mutex) {
  Run run(setup, begins);
  std::vector<double> norms;
  for (int64_t i = 0; i < updates; ++i) {
    EXPECT_TRUE(run.update([] { return false; }));
    norms.push_back(run.step().grad_norm().item<double>());
  }
  checkpoint::save_checkpoint(path,
                              checkpoint::share_of(run.state().capture(), *setup.mesh.all, checkpoint::Writers::all),
                              *setup.mesh.all, checkpoint::Writers::all);
  const std::lock_guard lock(mutex);
  saved.state_bytes += run.state().optimizer->bytes().device + run.state().optimizer->bytes().host;
  if (!setup.mesh.all->is_first()) return;
  saved.norms = norms;
  saved.checkpoint = checkpoint::read_checkpoint(path);
}

Saved saved_by(int64_t processes, int64_t updates, const Config& config, const data::Corpus& corpus,
               const checkpoint::Checkpoint* start = nullptr) {
  const ScratchFolder folder;
  Saved saved;
  std::mutex mutex;
  test::in_ranks(processes, [&](const distributed::Group& group) {
    const device::DeviceInfo device = device::describe_device(at::kCPU);
    Setup setup{config, corpus, device, device::resolve_precision(config.training.precision, device)};
    setup.mesh = group.mesh();
    Beginning begins;
    if (start) begins.start = StartingPoint{.checkpoint = *start, .path = "saved"};
    train_and_save(setup, begins, updates, folder / "ckpt.pt", saved, mutex);
  });
  return saved;
}

void expect_same(const Saved& a, const Saved& b) {
  expect_equal(a.checkpoint.model, b.checkpoint.model);
  EXPECT_EQ(a.norms, b.norms);
  ASSERT_EQ(a.checkpoint.optimizer.slots.size(), b.checkpoint.optimizer.slots.size());
  for (const auto& [slot, tensors] : a.checkpoint.optimizer.slots)
    expect_equal(b.checkpoint.optimizer.slot(slot), tensors);
  EXPECT_EQ(a.checkpoint.optimizer.step_count.item<float>(), b.checkpoint.optimizer.step_count.item<float>());
}

struct StateCase {
  const char* name;
  std::function<void(Config&)> set;
};

void PrintTo(const StateCase& state_case, std::ostream* out) { *out << state_case.name; }

class DividedState : public testing::TestWithParam<std::tuple<StateCase, int64_t>> {};

// A model of several stretches and segments, so that rows are cut and some gradients travel before others are there: with and without ZeRO
// the same updates, and the same checkpoint, from which other processes go on alike. Gradients that are divided are added up in another
// order where a process has several micro-batches.
TEST_P(DividedState, IsSavedAndReadInOnePiece) {
  const auto& [state_case, zero] = GetParam();
  if (zero != 2 && std::string_view(state_case.name) != "float32") SKIP_UNLESS_ALL_TESTS();
  const data::Corpus corpus = even_corpus();
  Config config = config_with(corpus, {});
  config.model.n_layer = 3, config.model.n_embd = 256;
  if (zero >= 2) config.training.gradient_accumulation_steps = 3;
  state_case.set(config);
  const Saved whole = saved_by(3, 2, config, corpus);
  config.distributed.zero = zero;
  const Saved divided = saved_by(3, 2, config, corpus);
  expect_same(divided, whole);
  EXPECT_NEAR(static_cast<double>(divided.state_bytes), static_cast<double>(whole.state_bytes) / 3, 10);
  const Saved resumed = saved_by(3, 1, config, corpus, &whole.checkpoint);
  config.distributed.zero = 0;
  expect_same(resumed, saved_by(3, 1, config, corpus, &divided.checkpoint));
}

void compute_in_bfloat16(Config& config) {
  config.training.precision.use_amp = true;
  config.training.precision.dtype = Dtype::bfloat16;
  config.training.precision.amp_mode = AmpMode::end_to_end;
}

const StateCase kStateCases[] = {
    {"float32", [](Config&) {}},
    {"llama",
     [](Config& config) {
       config.model.norm = Norm::rmsnorm, config.model.mlp = Mlp::swiglu, config.model.position = Position::rope;
       config.model.n_head = 4, config.model.n_kv_head = 2, config.model.bias = false, config.model.tie_weights = false;
     }},
    {"int8", [](Config& config) { config.training.optimizer.state_dtype = StateDtype::int8; }},
    {"bfloat16", [](Config& config) { config.training.optimizer.state_dtype = StateDtype::bfloat16; }},
    {"offloaded", [](Config& config) { config.training.optimizer.offload = 0.4; }},
    {"several_lanes",
     [](Config& config) { config.distributed.lanes = 6, config.training.gradient_accumulation_steps = 5; }},
    {"gradients_in_bfloat16",
     [](Config& config) {
       compute_in_bfloat16(config);
       config.training.precision.gradient_dtype = GradientDtype::bfloat16;
     }},
    {"weights_of_bfloat16_alone",
     [](Config& config) {
       compute_in_bfloat16(config);
       config.training.precision.master_weights = false;
       config.training.optimizer.state_dtype = StateDtype::int8;
     }},
    {"untied", [](Config& config) { config.model.tie_weights = false; }},
    {"recomputed",
     [](Config& config) { config.training.execution.gradient_checkpointing = GradientCheckpointing::block; }},
    {"recomputed_in_part",
     [](Config& config) { config.training.execution.gradient_checkpointing = GradientCheckpointing::selective; }},
    {"sent_in_bfloat16", [](Config& config) { config.distributed.reduce_dtype = ReduceDtype::bfloat16; }},
    {"muon", [](Config& config) { config.training.optimizer.kind = OptimizerKind::muon; }},
    {"normuon_in_8_bits_and_offloaded",
     [](Config& config) {
       config.training.optimizer.kind = OptimizerKind::normuon;
       config.training.optimizer.state_dtype = StateDtype::int8;
       config.training.optimizer.offload = 0.4;
     }},
    {"muon_computed_in_bfloat16",
     [](Config& config) {
       config.training.optimizer.kind = OptimizerKind::muon;
       config.training.tuning.freeze = {"wte", "h.1.mlp"};
       config.training.precision.use_amp = true, config.training.precision.dtype = Dtype::bfloat16;
     }},
    {"muon_in_several_lanes",
     [](Config& config) {
       config.training.optimizer.kind = OptimizerKind::muon;
       config.distributed.lanes = 6, config.training.gradient_accumulation_steps = 5;
     }},
    {"frozen",
     [](Config& config) {
       config.training.tuning.freeze = {"wte", "h.1", "h.*.attn"};
       config.training.optimizer.state_dtype = StateDtype::int8;
     }},
    {"adapters", [](Config& config) { config.training.tuning.lora.rank = 2; }},
    {"computed_in_bfloat16_and_frozen",
     [](Config& config) {
       config.training.tuning.freeze = {"wte", "h.0"};
       config.training.precision.use_amp = true, config.training.precision.dtype = Dtype::bfloat16;
     }},
    {"computed_in_bfloat16", compute_in_bfloat16},
};
// Stage 3 goes with neither frozen parameters, adapters nor Muon.
std::vector<std::tuple<StateCase, int64_t>> cases_of_stages() {
  std::vector<std::tuple<StateCase, int64_t>> cases;
  for (const StateCase& state_case : kStateCases) {
    Config config;
    state_case.set(config);
    const TuningConfig& tuning = config.training.tuning;
    const bool has_third = tuning.freeze.empty() && !tuning.lora.is_on() && !config.training.optimizer.has_muon();
    for (int64_t zero = 1; zero <= (has_third ? 3 : 2); ++zero) cases.emplace_back(state_case, zero);
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, DividedState, testing::ValuesIn(cases_of_stages()), [](const auto& test) {
  return fmt::format("{}_zero_{}", std::get<0>(test.param).name, std::get<1>(test.param));
});

// Fewer blocks of parameters than processes would have parts.
TEST(DividedRun, AProcessWithoutParametersOfItsOwnUpdatesNone) {
  const data::Corpus corpus = even_corpus();
  Config config = config_with(corpus, {});
  config.model.n_layer = 1, config.model.n_embd = 2, config.model.n_head = 1;
  const int64_t blocks = layout::flat_layout(layout::parameter_table(config.model)).size / layout::kParameterAlignment;
  const int64_t processes = 8;
  ASSERT_GE(at::divup(blocks, processes) * (processes - 1), blocks) << "so that the last one has none: " << blocks;
  config.training.batch_size = 1, config.training.gradient_accumulation_steps = 8;
  const Saved whole = saved_by(processes, 2, config, corpus);
  for (const int64_t zero : {1, 2, 3}) {
    config.distributed.zero = zero;
    expect_same(saved_by(processes, 2, config, corpus), whole);
  }
}

// Without lanes the sums are those of as many parts as there are processes: the same up to rounding. Compared are those of the first
// update, whose weights are the same.
TEST(DividedRun, WithoutLanesTheFirstSumsDifferByRounding) {
  constexpr double kEpsilon = std::numeric_limits<float>::epsilon(), kWireEpsilon = 0x1p-8;
  const Result one = results_of(1, {}, 1)[0];
  for (const ReduceDtype wire : {ReduceDtype::float32, ReduceDtype::bfloat16}) {
    const std::vector<Result> three = results_of(3, sent_in(wire), 1);
    for (const Result& result : three) {
      expect_equal(result.weights, three[0].weights);                              // all processes have the same
      EXPECT_NEAR(result.losses[0], one.losses[0], 5 * kEpsilon * one.losses[0]);  // five additions
      // Each part is rounded when it is sent, and their sum again; every value of the norm by so much at most.
      const double rounding = wire == ReduceDtype::float32 ? 5 * kEpsilon : 2 * kWireEpsilon;
      EXPECT_NEAR(result.norms[0], one.norms[0], 2 * rounding * one.norms[0]);
    }
  }
}

TEST(DividedRun, AnEvaluationThatDrawsMoreCountsEachSequenceOnce) {
  constexpr int64_t kUpdates = 20;  // until losses differ
  const data::Corpus corpus = uneven_corpus();
  const Evaluation one = results_of(1, with_lanes(8), kUpdates, corpus)[0].evaluation;
  EXPECT_GT(one.sequences, 102);  // what it draws at first, in whole batches
  // 34 batches and more, so that the processes have different numbers of them.
  for (const auto& [processes, zero] : {std::pair<int64_t, int64_t>(2, 0), {2, 3}, {4, 3}}) {
    for (const Result& result : results_of(processes, with_zero(zero, with_lanes(8)), kUpdates, corpus)) {
      EXPECT_EQ(result.evaluation.sequences, one.sequences);
      EXPECT_EQ(result.evaluation.loss, one.loss);
    }
  }
}

// Bytes of so many float32 values that go to each of the others, with what pads the parts to equal lengths.
double bytes_of(int64_t count, int64_t processes) {
  return static_cast<double>(distributed::part_of(count, 0, processes).end * (processes - 1)) * sizeof(float);
}

double bytes_per_update(const Setup& setup, int64_t updates) {
  Run run(setup);
  const int64_t before = setup.mesh.all->bytes_sent();
  for (int64_t i = 0; i < updates; ++i) EXPECT_TRUE(run.update([] { return false; }));
  return static_cast<double>(setup.mesh.all->bytes_sent() - before) / static_cast<double>(updates);
}

// Gradients go to those that add them up, in each of two rounds with ZeRO 2, and back, or new values instead; a loss goes
// there and back, alone or with norms of blocks.
TEST(DividedRun, AnUpdateSendsGradientsOnceAndSumsOrValuesOnce) {
  constexpr int64_t kProcesses = 4;
  const data::Corpus corpus = even_corpus();
  for (const DistributedConfig& distributed : {DistributedConfig{}, with_zero(1), with_zero(2)}) {
    const Config config = config_with(corpus, distributed);
    const int64_t values = layout::flat_layout(layout::parameter_table(config.model)).size;
    const int64_t others = distributed.zero > 0 ? values / layout::kParameterAlignment + 1 : 1;
    double expected = 2 * bytes_of(values, kProcesses) + 2 * bytes_of(others, kProcesses);
    if (distributed.zero == 2) expected += bytes_of(values, kProcesses);
    test::in_ranks(kProcesses, [&](const distributed::Group& group) {
      run::Setup setup{config, corpus, device::describe_device(at::kCPU), device::Precision{}};
      setup.mesh = group.mesh();
      EXPECT_EQ(bytes_per_update(setup, 3), expected);
    });
  }
}

// Each block's weights come for the forward and the backward pass of each of two rounds, but that the last block's are there still when the
// backward pass begins with it, and the first one's when the next forward pass does; what lies outside blocks once.
TEST(DividedRun, WeightsComeTogetherForEachPassThatNeedsThem) {
  constexpr int64_t kProcesses = 4, kLayers = 3, kRounds = 2;
  const data::Corpus corpus = even_corpus();
  Config config = config_with(corpus, with_zero(3));
  config.model.n_layer = kLayers;
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(config.model);
  const layout::FlatLayout layout = layout::flat_layout(rows);
  const std::vector<int64_t> ends = layout::layer_ends(rows, layout);
  const double block = bytes_of(ends[0] - ends[1], kProcesses),
               outside = bytes_of(ends.back(), kProcesses) + bytes_of(layout.size - ends[0], kProcesses),
               norms = 2 * bytes_of(layout.size / layout::kParameterAlignment + 1, kProcesses);
  const double weights = (1 + 2 * kRounds * (kLayers - 1)) * block + outside,
               gradients = kRounds * (kLayers * block + outside);
  for (const auto level : {GradientCheckpointing::none, GradientCheckpointing::block}) {
    config.training.execution.gradient_checkpointing = level;
    test::in_ranks(kProcesses, [&](const distributed::Group& group) {
      run::Setup setup{config, corpus, device::describe_device(at::kCPU), device::Precision{}};
      setup.mesh = group.mesh();
      EXPECT_EQ(bytes_per_update(setup, 3), weights + gradients + norms);
    });
  }
}

TEST(DividedRun, AStopInOneProcessStopsAllAtTheSamePoint) {
  std::vector<int64_t> stopped_at(3, -1);
  test::in_ranks(3, [&](const distributed::Group& group) {
    Interruptions interruptions(group.communicator());
    const int64_t rank = group.ranks().rank;
    for (int64_t point = 0; point < 10; ++point) {
      const Interruption interruption = interruptions.agree({.stop_signal = rank == 1 && point >= 4 ? 15 : 0});
      if (!interruption.stops()) continue;
      EXPECT_EQ(interruption.stop_signal, 15);
      stopped_at[static_cast<size_t>(rank)] = point;
      return;
    }
  });
  EXPECT_EQ(stopped_at, (std::vector<int64_t>{5, 5, 5}));  // one point later, so that nobody waits
}

TEST(DividedRun, OneProcessDecidesAtOnce) {
  Interruptions interruptions(distributed::alone());
  EXPECT_TRUE(interruptions.agree({.lacks_memory = true}).stops());
  EXPECT_FALSE(interruptions.agree({.saves = true}).stops());
}

}  // namespace
}  // namespace gpt::run
