// Each process computes its own micro-batches, in their lanes, and takes part in the rounds in which it has none.
#include "gpt/parallel/micro_steps.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parallel/quiet_communicator.h"

namespace gpt::parallel {
namespace {

using Events = std::vector<std::string>;

ModelConfig small_model() {
  ModelConfig config;
  config.n_layer = 1, config.n_head = 1, config.n_embd = 4, config.block_size = 4, config.vocab_size = 8;
  return config;
}

class Listening : public MicroSteps {
 public:
  explicit Listening(Events& events) : events_(events) {}
  void load(batches::DataLoader& loader, size_t lane, int64_t first_sample) override {
    events_.push_back(fmt::format("sample {} in lane {}", first_sample, lane));
    loader.skip();
  }
  void accumulate(bool is_last) override { events_.emplace_back(is_last ? "last" : "accumulated"); }
  PassingBatch take_loaded(bool) override { return {}; }
  at::Tensor forward(const PassingBatch&, const at::Tensor&) override { return {}; }
  void backward(const PassingBatch&, const at::Tensor&, const at::Tensor&) override {}

 private:
  Events& events_;
};

class Joining : public Strategy {
 public:
  Joining(const model::GPT& model, const Division& division, Events& events)
      : Strategy(model, model.parameters().rows(), division), events_(events) {}
  LayerDone layer_done(bool) override { return {}; }
  void join_others(Pass pass) override {
    events_.emplace_back(pass == Pass::forward ? "joined forward" : "joined backward");
  }
  void sum() override {}
  int64_t gradient_bytes() const override { return 0; }

 private:
  Events& events_;
};

// Events of five micro-batches of two samples each in four lanes, which two processes have; stopped before this round.
Events events_of(int64_t rank, int64_t stopped_before = 9) {
  constexpr int64_t kMicroBatches = 5;
  DistributedConfig config;
  config.lanes = 4;
  const Division division(std::make_shared<test::QuietCommunicator>(rank, 2), config);
  const data::ScheduleOptions schedule{.stages = {{.batch_size = 2, .block_size = 4}},
                                       .seed = 1,
                                       .dealing = division.dealing(kMicroBatches)};
  batches::DataLoader loader({data::Tokens::from_ids(std::vector<int32_t>(200, 1), 8)}, DataConfig{}, schedule,
                             at::kCPU);
  const model::GPT model(small_model(), at::kCPU, 1);
  Events events;
  Listening steps(events);
  Joining strategy(model, division, events);
  int64_t round = 0;
  const bool is_whole =
      compute_micro_batches(steps, strategy, loader, kMicroBatches, [&] { return ++round == stopped_before; });
  EXPECT_EQ(is_whole, round < stopped_before);
  EXPECT_TRUE(!is_whole || loader.tokens_seen() == kMicroBatches * 2 * 4) << loader.tokens_seen();
  return events;
}

TEST(MicroSteps, AreThoseOfTheProcess) {
  EXPECT_EQ(events_of(0), Events({"sample 0 in lane 0", "accumulated", "sample 4 in lane 1", "accumulated",
                                  "sample 8 in lane 0", "last"}));
}

TEST(MicroSteps, AProcessWithoutOneJoinsTheOthers) {
  EXPECT_EQ(events_of(1), Events({"sample 2 in lane 0", "accumulated", "sample 6 in lane 1", "accumulated",
                                  "joined forward", "joined backward"}));
}

TEST(MicroSteps, StopBetweenRounds) {
  EXPECT_EQ(events_of(0, /*stopped_before=*/1), Events({"sample 0 in lane 0", "accumulated"}));
}

}  // namespace
}  // namespace gpt::parallel
