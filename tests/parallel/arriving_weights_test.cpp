// New weights come one block after the other, and what is computed with them is what it is without waiting.
#include "gpt/parallel/arriving_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "run/mesh_run.h"

namespace gpt::parallel {
namespace {

using namespace run;

// A model of about 3 million values, which travel in several stretches.
ModelConfig some_blocks() {
  ModelConfig config;
  config.n_layer = 4, config.n_head = 2, config.n_embd = 256, config.block_size = 8, config.vocab_size = 100;
  return config;
}

// A copy of 16 bits is made of what has come, and of nothing else.
TEST(ArrivingWeights, EachBlockIsThereWhenAForwardPassComesToIt) {
  for (const int64_t zero : {1, 2}) {
    for (const bool overlaps : {true, false}) {
      test::in_ranks(2, [&](const distributed::Group& group) {
        DistributedConfig config;
        config.zero = zero;
        const Division division(group.mesh(), config);
        model::GPT model(some_blocks(), at::kCPU, 7, parameters::ParameterTypes{.compute = at::kBFloat16});
        const at::NoGradGuard no_grad;
        const parameters::Parameters& parameters = model.parameters();
        const at::Tensor values = parameters.flat_values().detach(), copies = parameters.flat_rounded();
        const at::Tensor expected = copies.clone(), others = at::zeros_like(values, at::kBool).fill_(true);
        for (const layout::FlatSpan& span : division.spans(parameters.rows(), parameters.layout()))
          others.slice(0, span.begin, span.end).fill_(false);
        for (const at::Tensor& x : {values, copies}) x.masked_fill_(others, std::numeric_limits<double>::quiet_NaN());
        ArrivingWeights weights(model, division, overlaps);
        const auto is_there = [&](int64_t layer) {
          for (size_t i = 0; i < parameters.rows().size(); ++i) {
            const layout::ParameterRow& row = parameters.rows()[i];
            if (row.layer == layer && !std::isfinite(parameters[i].compute_value().sum().item<double>())) return false;
          }
          return true;
        };
        weights.values_changed();
        EXPECT_TRUE(is_there(-1)) << "the embeddings";
        EXPECT_EQ(is_there(2), !overlaps);
        for (int64_t layer = 0; layer < 4; ++layer) {
          EXPECT_EQ(is_there(3), !overlaps || layer == 3) << "stretches of about a block come one by one";
          weights.before_forward(layer);
          EXPECT_TRUE(is_there(layer));
          if (layer == 2) weights.await_all();
        }
        EXPECT_TRUE(is_there(4)) << "the final norm";
        EXPECT_TRUE(copies.equal(expected));
      });
    }
  }
}

struct OverlappedCase {
  std::string name;
  Shape shape;
  void (*set)(Config& config);
};

class OverlappedRun : public testing::TestWithParam<OverlappedCase> {};

// The checkpoint of three updates, taken while weights of the last one are on their way.
checkpoint::Checkpoint after_updates(const Shape& shape, const Config& config, const data::Corpus& corpus) {
  checkpoint::Checkpoint checkpoint;
  in_mesh(shape, config, corpus, [&](const run::Setup& setup) {
    run::Run run(setup, {});
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(run.update([] { return false; }));
    checkpoint::Checkpoint captured = copy_of_whole(run.state(), setup);
    if (setup.mesh.all->is_first()) checkpoint = std::move(captured);
  });
  return checkpoint;
}

TEST_P(OverlappedRun, HasTheWeightsOfOneWithoutZero) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = divided_run(corpus);
  config.model.n_embd = 256, config.model.n_hidden = 512, config.model.n_layer = 4;
  GetParam().set(config);
  const checkpoint::Checkpoint arrived = after_updates(GetParam().shape, config, corpus);
  config.distributed.zero = 0;
  expect_same_state(arrived, after_updates(GetParam().shape, config, corpus));
}

INSTANTIATE_TEST_SUITE_P(
    All, OverlappedRun,
    testing::Values(OverlappedCase{"zero_1", {2, 1}, [](Config& config) { config.distributed.zero = 1; }},
                    OverlappedCase{"zero_2_in_16_bits",
                                   {2, 1},
                                   [](Config& config) {
                                     config.distributed.zero = 2;
                                     use_bfloat16(config, AmpMode::end_to_end);
                                   }},
                    OverlappedCase{"muon",
                                   {2, 1},
                                   [](Config& config) {
                                     config.distributed.zero = 1;
                                     config.training.optimizer.kind = OptimizerKind::muon;
                                   }},
                    OverlappedCase{"stages", {4, 1, 2}, [](Config& config) { config.distributed.zero = 1; }}),
    [](const auto& info) { return info.param.name; });

// Copies of 16 bits are made of weights that have been waited for.
TEST(ArrivingWeights, ACheckpointWaitsForAll) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = divided_run(corpus);
  config.model.n_embd = 256, config.model.n_hidden = 512, config.model.n_layer = 4, config.distributed.zero = 1;
  use_bfloat16(config, AmpMode::end_to_end);
  in_mesh({2, 1}, config, corpus, [](const run::Setup& setup) {
    run::Run made(setup, {});
    EXPECT_TRUE(made.update([] { return false; }));
    const parameters::Parameters& parameters = made.model().parameters();
    const auto all_are_copied = [&] {
      const at::NoGradGuard no_grad;
      return parameters.flat_rounded().equal(parameters.flat_values().to(at::kBFloat16));
    };
    setup.mesh.all->sum(at::zeros({1}));  // what was begun before has arrived
    EXPECT_FALSE(all_are_copied());
    (void)made.state().capture();
    EXPECT_TRUE(all_are_copied());
  });
}

}  // namespace
}  // namespace gpt::parallel
