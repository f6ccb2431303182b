// Runs that processes compute with a part of the model each: the updates and checkpoints of one process.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "distributed/local_group.h"
#include "gpt/model/tensor_parallel.h"
#include "gpt/ops/moments.h"
#include "gpt/plan/sent_bytes.h"
#include "gpt/run/run.h"
#include "support/tolerance.h"
#include "train/tiny_run.h"

namespace gpt::run {
namespace {

// Of `processes`, each `tensor` neighbours divide the model.
struct Shape {
  int64_t processes, tensor;
};

Corpus corpus_with_validation() {
  Corpus corpus = some_corpus();
  corpus.validation = corpus.train;
  return corpus;
}

// AdamW whose epsilon is far above its second moments: an update is then the gradient's mean times learning_rate / eps, and what rounding
// does to a gradient goes into the weights as it is. With a small epsilon a gradient of nothing but roundings would move a weight as far as
// any other.
constexpr double kRate = 1;

Config divided_run(const Corpus& corpus) {
  Config config = tiny_config(corpus);
  config.model.n_head = 4, config.model.n_kv_head = 4, config.model.n_embd = 32, config.model.n_hidden = 68;
  config.model.vocab_multiple = 1, config.model.block_size = 16;
  config.training.batch_size = 3, config.training.gradient_accumulation_steps = 2;
  ScheduleConfig& schedule = config.training.schedule;
  schedule.max_steps = 50, schedule.warmup_steps = 0, schedule.learning_rate = kRate;
  schedule.lr_schedule = LrSchedule::constant;
  config.training.optimizer.eps = 1, config.training.optimizer.weight_decay = 0;
  config.training.precision.use_amp = false;
  config.training.cadence.eval_batches = 4;
  return config;
}

struct Outcome {
  Checkpoint checkpoint;  // of the first process
  std::vector<double> losses, norms;
  double validation = 0;
};

NamedTensors copied(const NamedTensors& tensors) {
  NamedTensors copies;
  for (const auto& [name, tensor] : tensors) copies.emplace_back(name, tensor.detach().clone());
  return copies;
}

// Of a tensor that processes have between them. To each number of one process the others add zeros.
at::Tensor whole(const at::Tensor& tensor, const std::vector<TensorPart>& parts, distributed::Communicator& ranks) {
  constexpr int64_t kNumber = sizeof(int64_t);
  const auto size = static_cast<int64_t>(tensor.nbytes());
  const at::Tensor bytes = at::zeros({at::divup(size, kNumber) * kNumber}, at::kByte),
                   values = bytes.narrow(0, 0, size).view(tensor.scalar_type());
  for (const TensorPart& part : parts)
    if (part.values.defined()) values.slice(0, part.begin, part.end).copy_(part.values);
  ranks.sum(bytes.view(at::kLong));
  return values.view(tensor.sizes());
}

// Nothing at all processes but the first.
Checkpoint captured(State& state, const Setup& setup) {
  state.gather();
  if (!state.can_capture() || (state.division().divides_model() && !setup.mesh.all->is_first())) return {};
  Checkpoint checkpoint = state.capture();
  for (auto& [slot, tensors] : checkpoint.optimizer.slots)
    for (auto& [name, tensor] : tensors)
      if (tensor.is_meta()) tensor = whole(tensor, checkpoint.parts.at(slot + "/" + name), *setup.mesh.data);
  checkpoint.parts.clear();
  return setup.mesh.all->is_first() ? checkpoint : Checkpoint();
}

Outcome outcome_of(const Setup& setup, const Beginning& begins, int64_t updates) {
  Run run(setup, begins);
  Outcome outcome;
  for (int64_t i = 0; i < updates; ++i) {
    EXPECT_TRUE(run.update([] { return false; }));
    outcome.losses.push_back(run.step().loss().item<double>());
    outcome.norms.push_back(run.step().grad_norm().item<double>());
  }
  outcome.validation = run.evaluator().run(run.model(), [](double) { return false; }).loss;
  outcome.checkpoint = captured(run.state(), setup);
  if (!setup.mesh.all->is_first()) return outcome;
  outcome.checkpoint.model = copied(outcome.checkpoint.model);
  for (auto& [slot, tensors] : outcome.checkpoint.optimizer.slots) tensors = copied(tensors);
  outcome.checkpoint.optimizer.step_count = outcome.checkpoint.optimizer.step_count.clone();
  return outcome;
}

// Of the first process; the others must have seen the same.
Outcome outcome_on(const Shape& shape, Config config, const Corpus& corpus, int64_t updates,
                   const Checkpoint* start = nullptr) {
  config.distributed.processes = shape.processes, config.distributed.tensor_parallel = shape.tensor;
  std::vector<Outcome> all(static_cast<size_t>(shape.processes));
  test::in_ranks(shape.processes, [&](distributed::Group& group) {
    group.arrange(shape.tensor);
    const DeviceInfo device = describe_device(at::kCPU);
    Setup setup{config, corpus, device, resolve_precision(config.training.precision, device)};
    setup.mesh = group.mesh();
    Beginning begins;
    if (start) begins.start = StartingPoint{.checkpoint = *start, .path = "saved"};
    all[static_cast<size_t>(group.ranks().rank)] = outcome_of(setup, begins, updates);
  });
  for (const Outcome& other : all) {
    EXPECT_EQ(other.losses, all[0].losses);
    EXPECT_EQ(other.norms, all[0].norms);
    EXPECT_EQ(other.validation, all[0].validation);
  }
  return all[0];
}

int64_t roundings_of(const Config& config) {
  const ModelConfig& model = config.model;
  const int64_t forward =
      model.n_layer * (5 * model.n_embd + model.head_dim() + model.block_size + model.hidden()) + 2 * model.n_embd;
  return 3 * forward + config.training.batch_size * config.training.gradient_accumulation_steps * model.block_size;
}

// An update moves a weight by at most kRate times the mean of its gradients, of which none is larger than the norm; what the weights' own
// differences do to later gradients is no more than that again, as long as there are few updates.
double bound_of_weights(const Config& config, const std::vector<double>& norms, at::ScalarType type) {
  double bound = 0;
  for (const double norm : norms)
    bound += 2 * kRate *
             test::tolerance(type, roundings_of(config), std::min(norm, config.training.optimizer.gradient_clip));
  return bound;
}

void expect_close(const Outcome& divided, const Outcome& one, const Config& config, at::ScalarType type) {
  for (size_t i = 0; i < one.losses.size(); ++i) {
    const double bound = test::tolerance(type, roundings_of(config), one.losses[i]);
    EXPECT_NEAR(divided.losses[i], one.losses[i], bound) << i;
    EXPECT_NEAR(divided.norms[i], one.norms[i], 2 * test::tolerance(type, roundings_of(config), one.norms[i])) << i;
  }
  EXPECT_NEAR(divided.validation, one.validation, test::tolerance(type, roundings_of(config), one.validation));
  const double bound = bound_of_weights(config, one.norms, type);
  ASSERT_EQ(divided.checkpoint.model.size(), one.checkpoint.model.size());
  for (size_t i = 0; i < one.checkpoint.model.size(); ++i) {
    const auto& [name, value] = one.checkpoint.model[i];
    EXPECT_EQ(divided.checkpoint.model[i].first, name);
    const double difference = (divided.checkpoint.model[i].second - value).abs().max().item<double>();
    EXPECT_LE(difference, bound) << name;
  }
}

struct RunCase {
  const char* name;
  std::function<void(Config&)> set;
  std::vector<Shape> shapes = {{4, 2}};
  at::ScalarType type = at::kFloat;  // of the roundings
};

void PrintTo(const RunCase& run_case, std::ostream* out) { *out << run_case.name; }

void make_gpt2(Config& config) {
  config.model.norm = Norm::layernorm, config.model.mlp = Mlp::gelu, config.model.position = Position::learned;
  config.model.bias = true;
}

void compute_in_bfloat16(Config& config, AmpMode mode) {
  config.training.precision.use_amp = true;
  config.training.precision.dtype = Dtype::bfloat16;
  config.training.precision.amp_mode = mode;
}

const RunCase kRunCases[] = {
    {"llama_tied", [](Config&) {}, {{2, 2}, {4, 2}, {4, 4}}},
    {"llama_with_groups_of_queries_untied",
     [](Config& config) { config.model.n_head = 8, config.model.tie_weights = false; }},
    {"gpt2", make_gpt2, {{2, 2}, {4, 4}}},
    {"gpt2_untied_and_recomputed",
     [](Config& config) {
       make_gpt2(config);
       config.model.tie_weights = false;
       config.training.execution.gradient_checkpointing = GradientCheckpointing::block;
     },
     {{2, 2}}},
    {"clipped", [](Config& config) { config.training.optimizer.gradient_clip = 0.1; }, {{2, 2}}},
    {"windowed", [](Config& config) { config.model.attention_window = 5; }, {{2, 2}}},
    {"smoothed", [](Config& config) { config.training.label_smoothing = 0.1; }, {{2, 2}}},
    {"frozen", [](Config& config) { config.training.freeze = {"wte", "h.0", "h.1.attn.c_attn"}; }, {{2, 2}}},
    {"zero_1", [](Config& config) { config.distributed.zero = 1; }},
    {"zero_2", [](Config& config) { config.distributed.zero = 2; }},
    {"autocast", [](Config& config) { compute_in_bfloat16(config, AmpMode::autocast); }, {{2, 2}}, at::kBFloat16},
    {"bfloat16_end_to_end",
     [](Config& config) { compute_in_bfloat16(config, AmpMode::end_to_end); },
     {{2, 2}},
     at::kBFloat16},
};

class TensorParallelRun : public testing::TestWithParam<RunCase> {};

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

INSTANTIATE_TEST_SUITE_P(All, TensorParallelRun, testing::ValuesIn(kRunCases),
                         [](const auto& test) { return std::string(test.param.name); });

void expect_same_state(const Checkpoint& a, const Checkpoint& b) {
  expect_equal(a.model, b.model);
  ASSERT_EQ(a.optimizer.slots.size(), b.optimizer.slots.size());
  for (const auto& [slot, tensors] : a.optimizer.slots) expect_equal(b.optimizer.slot(slot), tensors);
  EXPECT_EQ(a.optimizer.step_count.item<float>(), b.optimizer.step_count.item<float>());
}

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
                 textbook = 2 * bytes_of_tensor_sums(config.model, 2, /*tokens=*/4.0 * 64, {}, /*recomputed=*/false);
    EXPECT_NEAR(of_tensor, textbook, 3 * 2 * sizeof(float) + 1)
        << "beside the sums of activations only norms of parts are sent";
  });
}

}  // namespace
}  // namespace gpt::run
