#include "gpt/checkpoint/snapshot.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "checkpoint/sample_checkpoint.h"
#include "src/checkpoint/parts.h"

namespace gpt::checkpoint {
namespace {

void expect_same(const parameters::NamedTensors& got, const parameters::NamedTensors& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, expected[i].first);
    EXPECT_EQ(got[i].second.scalar_type(), expected[i].second.scalar_type()) << got[i].first;
    EXPECT_TRUE(got[i].second.equal(expected[i].second)) << got[i].first;
  }
}

TEST(Snapshot, HoldsWhatTheStateWas) {
  const Checkpoint state = test::sample_checkpoint();
  parameters::NamedTensors before;
  for (const auto& [name, tensor] : checkpoint::tensors_of(state)) before.emplace_back(name, tensor.clone());
  Snapshot snapshot;
  const Checkpoint copy = snapshot.take(state);
  for (const auto& [name, tensor] : checkpoint::tensors_of(state)) tensor.zero_();
  expect_same(checkpoint::tensors_of(copy), before);
  EXPECT_EQ(copy.step, state.step);
  EXPECT_EQ(copy.tokenizer, state.tokenizer);
}

// A copy has what this process has of a tensor in parts.
TEST(Snapshot, HoldsOwnParts) {
  Checkpoint state = test::sample_checkpoint();
  const uint64_t whole = Snapshot::bytes_of(state);
  const at::Tensor values = at::ones({10});
  state.model[0].second = at::empty({7, 5}, at::TensorOptions(at::kMeta));
  state.parts["model/" + state.model[0].first] = {{0, 10, 1, values}, {10, 35, 0}};
  EXPECT_LT(Snapshot::bytes_of(state), whole);
  Snapshot snapshot;
  const Checkpoint copy = snapshot.take(state);
  values.zero_();
  EXPECT_TRUE(copy.model[0].second.is_meta());
  const std::vector<TensorPart>& parts = copy.parts.at("model/" + state.model[0].first);
  EXPECT_TRUE(parts[0].values.equal(at::ones({10})));
  EXPECT_FALSE(parts[1].values.defined());
}

TEST(Snapshot, TakesItsMemoryOnce) {
  const Checkpoint state = test::sample_checkpoint();
  Snapshot snapshot;
  const void* const first = snapshot.take(state).model.front().second.const_data_ptr();
  EXPECT_EQ(snapshot.take(state).model.front().second.const_data_ptr(), first);
  Checkpoint larger = state;
  larger.model.emplace_back("another", at::ones({100'000}));
  expect_same(snapshot.take(larger).model, larger.model);
  EXPECT_GT(Snapshot::bytes_of(larger), Snapshot::bytes_of(state) + 399'999);
}

}  // namespace
}  // namespace gpt::checkpoint
