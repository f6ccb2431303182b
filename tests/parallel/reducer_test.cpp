#include "gpt/parallel/reducer.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "gpt/config/model_config.h"
#include "parallel/quiet_communicator.h"

namespace gpt::parallel {
namespace {

// Only remembers where the spans begin and end in a flat buffer.
class Remembering : public test::QuietCommunicator {
 public:
  Remembering() : QuietCommunicator(0, 2) {}
  void begin_sum(const at::Tensor& x, at::ScalarType) override {
    begun.emplace_back(x.storage_offset(), x.storage_offset() + x.numel());
  }
  void finish() override { ++finished; }

  std::vector<std::pair<int64_t, int64_t>> begun;
  int finished = 0;
};

ModelConfig layers_of_several_stretches() {
  ModelConfig config;
  config.n_layer = 4, config.n_head = 2, config.n_embd = 384, config.block_size = 8, config.vocab_size = 100;
  return config;
}

struct ReducerTest : testing::Test {
  std::shared_ptr<Remembering> ranks = std::make_shared<Remembering>();
  const parameters::Parameters parameters{layout::parameter_table(layers_of_several_stretches()), at::kCPU};
  const Division division{ranks, {}};
  Reducer reducer{parameters, division};

  void contribute() const {
    for (size_t i = 0; i < parameters.rows().size(); ++i)
      parameters[i].add_to_gradient(at::ones(parameters.rows()[i].shape));
  }

  // Where the parameters of a layer end, which are not before those of later ones.
  int64_t end_of(int64_t layer) const {
    int64_t end = 0;
    for (size_t i = 0; i < parameters.rows().size(); ++i) {
      if (parameters.rows()[i].layer >= layer)
        end = std::max(end, parameters.layout().offsets[i] + parameters.rows()[i].count());
    }
    return end;
  }
};

TEST_F(ReducerTest, StretchesBeginAsSoonAsTheyAreComplete) {
  contribute();
  const int64_t size = parameters.layout().size, stretch = stretch_values(size, 2);
  ASSERT_GT(size / stretch, 4) << "or nothing is shown";
  reducer.begin({true});
  EXPECT_TRUE(ranks->begun.empty());
  for (int64_t layer = 3; layer >= 0; --layer) {
    reducer.layer_done(layer);
    EXPECT_EQ(std::ssize(ranks->begun), end_of(layer) / stretch) << layer;
    for (const auto& [begin, end] : ranks->begun) EXPECT_LE(end, end_of(layer)) << layer;
  }
  EXPECT_EQ(ranks->finished, 0);
  reducer.finish();
  EXPECT_EQ(ranks->finished, 1);
  int64_t next = 0;
  for (const auto& [begin, end] : ranks->begun) {
    EXPECT_EQ(begin, next);
    next = end;
  }
  EXPECT_EQ(next, size);
}

TEST_F(ReducerTest, AProcessWithoutAMicroBatchSendsTheSameStretchesOfZeros) {
  contribute();
  reducer.begin({false});
  reducer.finish();
  EXPECT_EQ(std::ssize(ranks->begun), at::divup(parameters.layout().size, stretch_values(parameters.layout().size, 2)));
  EXPECT_EQ(parameters.flat_gradients().count_nonzero().item<int64_t>(), 0);
}

TEST_F(ReducerTest, AParameterThatNobodyContributedToIsAnError) {
  parameters[0].add_to_gradient(at::ones(parameters.rows()[0].shape));
  reducer.begin({true});
  EXPECT_THROW(reducer.finish(), c10::Error);
}

}  // namespace
}  // namespace gpt::parallel
