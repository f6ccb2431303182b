// Runs of a few updates on meshes of processes, which threads of the test play, and what comes out of them.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "distributed/local_group.h"
#include "gpt/parameters/named_tensors.h"
#include "gpt/run/run.h"
#include "support/long_test.h"
#include "support/tolerance.h"
#include "train/tiny_run.h"

namespace gpt::run {

// The processes of a run: each `tensor` neighbours divide the layers of the model, of which there are `stages`.
struct Shape {
  int64_t processes, tensor, stages = 1;
};

inline data::Corpus corpus_with_validation() {
  data::Corpus corpus = some_corpus();
  corpus.validation = corpus.train;
  return corpus;
}

// AdamW whose epsilon is far above its second moments: an update is then the gradient's mean times learning_rate / eps, and what rounding
// does to a gradient goes into the weights as it is. With a small epsilon a gradient of nothing but roundings would move a weight as far as
// any other.
inline constexpr double kUpdateRate = 1;

// Enough for a loss that has fallen; more of them take the processes, of which there are more than cores, some seconds for each case.
inline int64_t compared_updates() { return test::runs_long_tests() ? 20 : 6; }

inline Config divided_run(const data::Corpus& corpus) {
  Config config = tiny_config(corpus);
  config.model.n_head = 4, config.model.n_kv_head = 4, config.model.n_embd = 32, config.model.n_hidden = 68;
  config.model.vocab_multiple = 1, config.model.block_size = 16;
  config.training.batch_size = 3, config.training.gradient_accumulation_steps = 2;
  ScheduleConfig& schedule = config.training.schedule;
  schedule.max_steps = 50, schedule.warmup_steps = 0, schedule.learning_rate = kUpdateRate;
  schedule.lr_schedule = LrSchedule::constant;
  config.training.optimizer.eps = 1, config.training.optimizer.weight_decay = 0;
  config.training.precision.use_amp = false;
  config.training.cadence.eval_batches = 4;
  return config;
}

struct Outcome {
  checkpoint::Checkpoint checkpoint;  // of the first process
  std::vector<double> losses, norms;
  double validation = 0;
};

inline parameters::NamedTensors copied(const parameters::NamedTensors& tensors) {
  parameters::NamedTensors copies;
  for (const auto& [name, tensor] : tensors) copies.emplace_back(name, tensor.detach().clone());
  return copies;
}

// The whole of a tensor that processes have between them. To each number of one process the others add zeros.
inline at::Tensor whole(const at::Tensor& tensor, const std::vector<checkpoint::TensorPart>& parts,
                        distributed::Communicator& ranks) {
  constexpr int64_t kNumber = sizeof(int64_t);
  const auto size = static_cast<int64_t>(tensor.nbytes());
  const at::Tensor bytes = at::zeros({at::divup(size, kNumber) * kNumber}, at::kByte),
                   values = bytes.narrow(0, 0, size).view(tensor.scalar_type());
  for (const checkpoint::TensorPart& part : parts)
    if (part.values.defined()) parameters::put_in_whole(part.cut.get(), {part.begin, part.end}, part.values, values);
  ranks.sum(bytes.view(at::kLong));
  return values.view(tensor.sizes());
}

// Nothing at all processes but the first.
inline checkpoint::Checkpoint captured_whole(State& state, const Setup& setup) {
  state.prepare_capture();
  if (!state.division().divides_checkpoints() && !setup.mesh.all->is_first()) return {};
  checkpoint::Checkpoint checkpoint = state.capture();
  const auto make_whole = [&](const std::string& group, parameters::NamedTensors& tensors) {
    for (auto& [name, tensor] : tensors)
      if (tensor.is_meta()) tensor = whole(tensor, checkpoint.parts.at(group + "/" + name), *setup.mesh.all);
  };
  make_whole("model", checkpoint.model);
  for (auto& [slot, tensors] : checkpoint.optimizer.slots) make_whole(slot, tensors);
  checkpoint.parts.clear();
  return setup.mesh.all->is_first() ? checkpoint : checkpoint::Checkpoint();
}

// The same in memory of its own, which later updates leave as it is.
inline checkpoint::Checkpoint copy_of_whole(State& state, const Setup& setup) {
  checkpoint::Checkpoint checkpoint = captured_whole(state, setup);
  if (!setup.mesh.all->is_first()) return checkpoint;
  checkpoint.model = copied(checkpoint.model);
  for (auto& [slot, tensors] : checkpoint.optimizer.slots) tensors = copied(tensors);
  checkpoint.optimizer.step_count = checkpoint.optimizer.step_count.clone();
  return checkpoint;
}

inline Outcome outcome_of(const Setup& setup, const Beginning& begins, int64_t updates) {
  Run run(setup, begins);
  Outcome outcome;
  for (int64_t i = 0; i < updates; ++i) {
    EXPECT_TRUE(run.update([] { return false; }));
    outcome.losses.push_back(run.step().loss().item<double>());
    outcome.norms.push_back(run.step().grad_norm().item<double>());
  }
  outcome.validation = run.evaluator().run(run.model(), [](double) { return false; }).loss;
  outcome.checkpoint = copy_of_whole(run.state(), setup);
  return outcome;
}

inline void set_shape(Config& config, const Shape& shape) {
  DistributedConfig& distributed = config.distributed;
  distributed.processes = shape.processes;
  distributed.tensor_parallel = shape.tensor, distributed.pipeline_parallel = shape.stages;
}

// Calls work(setup) in each process of a mesh, whose run this is.
template <typename Work>
void in_mesh(const Shape& shape, Config config, const data::Corpus& corpus, const Work& work) {
  set_shape(config, shape);
  test::in_ranks(shape.processes, [&](distributed::Group& group) {
    group.arrange(shape.tensor, shape.stages);
    const device::DeviceInfo device = device::describe_device(at::kCPU);
    Setup setup{config, corpus, device, device::resolve_precision(config.training.precision, device)};
    setup.mesh = group.mesh();
    work(setup);
  });
}

// The outcome of the first process; the others must have seen the same.
inline Outcome outcome_on(const Shape& shape, const Config& config, const data::Corpus& corpus, int64_t updates,
                          const checkpoint::Checkpoint* start = nullptr) {
  std::vector<Outcome> all(static_cast<size_t>(shape.processes));
  in_mesh(shape, config, corpus, [&](const Setup& setup) {
    Beginning begins;
    if (start) begins.start = StartingPoint{.checkpoint = *start, .path = "saved"};
    all[static_cast<size_t>(setup.mesh.all->rank())] = outcome_of(setup, begins, updates);
  });
  for (const Outcome& other : all) {
    EXPECT_EQ(other.losses, all[0].losses);
    EXPECT_EQ(other.norms, all[0].norms);
    EXPECT_EQ(other.validation, all[0].validation);
  }
  return all[0];
}

inline int64_t roundings_of(const Config& config) {
  const ModelConfig& model = config.model;
  const int64_t forward =
      model.n_layer * (5 * model.n_embd + model.head_dim() + model.block_size + model.hidden()) + 2 * model.n_embd;
  return 3 * forward + config.training.batch_size * config.training.gradient_accumulation_steps * model.block_size;
}

// An update moves a weight by at most kUpdateRate times the mean of its gradients, of which none is larger than the norm; what the weights' own
// differences do to later gradients is no more than that again, as long as there are few updates.
inline double bound_of_weights(const Config& config, const std::vector<double>& norms, at::ScalarType type) {
  double bound = 0;
  for (const double norm : norms)
    bound += 2 * kUpdateRate *
             test::tolerance(type, roundings_of(config), std::min(norm, config.training.optimizer.gradient_clip));
  return bound;
}

inline void expect_close(const Outcome& divided, const Outcome& one, const Config& config, at::ScalarType type) {
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

inline void make_gpt2(Config& config) {
  config.model.norm = Norm::layernorm, config.model.mlp = Mlp::gelu, config.model.position = Position::learned;
  config.model.bias = true;
}

inline void use_bfloat16(Config& config, AmpMode mode) {
  config.training.precision.use_amp = true;
  config.training.precision.dtype = Dtype::bfloat16;
  config.training.precision.amp_mode = mode;
}

inline void expect_same_state(const checkpoint::Checkpoint& a, const checkpoint::Checkpoint& b) {
  expect_equal(a.model, b.model);
  ASSERT_EQ(a.optimizer.slots.size(), b.optimizer.slots.size());
  for (const auto& [slot, tensors] : a.optimizer.slots) expect_equal(b.optimizer.slot(slot), tensors);
  EXPECT_EQ(a.optimizer.step_count.item<float>(), b.optimizer.step_count.item<float>());
}

inline void expect_same_outcome(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.validation, b.validation);
  expect_same_state(a.checkpoint, b.checkpoint);
}

}  // namespace gpt::run
