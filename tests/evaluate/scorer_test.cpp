#include "gpt/evaluate/scorer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "evaluate/fixture_model.h"
#include "gpt/ops/narrow_weights.h"
#include "support/device_cases.h"
#include "support/expect_error.h"

namespace gpt::evaluate {
namespace {

bool never() { return false; }

class ScorerTest : public testing::Test {
 protected:
  ScorerTest() {
    std::mt19937 draw(3);
    for (int i = 0; i < 30; ++i) {
      Request request;
      const int64_t length = 2 + draw() % 40;
      for (int64_t t = 0; t < length; ++t)
        request.ids.push_back(static_cast<int32_t>(draw() % *fixture_.model.config().vocab_size));
      request.scored = 1 + draw() % (length - 1);
      requests_.push_back(request);
    }
  }

  std::vector<const Request*> pointers() const {
    std::vector<const Request*> result;
    for (const Request& request : requests_) result.push_back(&request);
    return result;
  }

  // By the logits of the request alone, in float64.
  Score expected(const Request& request) const {
    const at::NoGradGuard no_grad;
    const auto inputs = std::ssize(request.ids) - 1;
    const at::Tensor ids =
        at::tensor(std::vector<int64_t>(request.ids.begin(), request.ids.end() - 1)).view({1, inputs});
    const at::Tensor logits = fixture_.model.forward(ids)[0].to(at::kDouble), log_softmax = logits.log_softmax(1);
    Score score{0, true};
    for (int64_t t = inputs - request.scored; t < inputs; ++t) {
      score.log_likelihood += log_softmax[t][request.ids[t + 1]].item<double>();
      score.is_greedy &= logits[t].argmax().item<int64_t>() == request.ids[t + 1];
    }
    return score;
  }

  test::FixtureModel fixture_;
  std::vector<Request> requests_;
};

// The error of sums of at most 40 log-probabilities of about 6, in float32: 40 * 6 * 2^-24 each, and as much again for the logits.
constexpr double kSumTolerance = 40 * 6 * 6e-8 * 4;

class ScorerOnDevicesTest : public ScorerTest, public testing::WithParamInterface<DeviceCase> {};

TEST_P(ScorerOnDevicesTest, ScoresAreThoseOfTheLogitsWhateverTheBatches) {
  GPT_SKIP_WITHOUT(GetParam());
  model::GPT model(fixture_.stored.model, GetParam().device, fixture_.model.parameters().values());
  for (const int64_t batch_size : {0, 1, 7}) {
    const std::vector<Score> scores = Scorer(model, at::kFloat, batch_size).score(pointers(), never);
    ASSERT_EQ(scores.size(), requests_.size());
    for (size_t i = 0; i < scores.size(); ++i)
      EXPECT_NEAR(scores[i].log_likelihood, expected(requests_[i]).log_likelihood, kSumTolerance) << i;
  }
}

INSTANTIATE_ON_DEVICES(ScorerOnDevicesTest);

TEST_F(ScorerTest, GreedyIsWhatTheModelWouldWrite) {
  // Each request goes on as the model would, but every other one errs in its first scored token.
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < requests_.size(); ++i) {
    Request& request = requests_[i];
    for (auto t = std::ssize(request.ids) - request.scored; t < std::ssize(request.ids); ++t) {
      const std::vector<int64_t> before(request.ids.begin(), request.ids.begin() + t);
      const at::Tensor logits = fixture_.model.forward(at::tensor(before).view({1, t}))[0][t - 1];
      request.ids[t] = static_cast<int32_t>(logits.argmax().item<int64_t>());
      if (i % 2 && t == std::ssize(request.ids) - request.scored)
        request.ids[t] = (request.ids[t] + 1) % static_cast<int32_t>(*fixture_.model.config().vocab_size);
    }
  }
  const std::vector<Score> scores = Scorer(fixture_.model, at::kFloat, 4).score(pointers(), never);
  for (size_t i = 0; i < scores.size(); ++i) EXPECT_EQ(scores[i].is_greedy, i % 2 == 0) << i;
}

TEST_F(ScorerTest, EqualRequestsAreComputedOnce) {
  for (size_t i = 1; i < requests_.size(); i += 3) requests_[i] = requests_[0];  // 10 of 30
  int batches = 0;
  const std::vector<Score> scores =
      Scorer(fixture_.model, at::kFloat, 1).score(pointers(), [&] { return ++batches == 0; });
  EXPECT_EQ(batches, 20);
  for (size_t i = 1; i < requests_.size(); i += 3) EXPECT_EQ(scores[i].log_likelihood, scores[0].log_likelihood);
}

TEST_F(ScorerTest, WeightsOf16BitsAreScoredToo) {
  model::GPT narrow(fixture_.stored.model, at::kCPU, fixture_.model.parameters().values(),
                    parameters::ParameterTypes{.compute = at::kBFloat16, .has_master = false});
  narrow.set_operators(ops::narrow_weight_operators(narrow.parameters()));
  const std::vector<Score> scores = Scorer(narrow, at::kFloat, 7).score(pointers(), never);
  // The fixture's weights are numbers of bfloat16, so only products that are rounded to 8 bits make a difference.
  for (size_t i = 0; i < scores.size(); ++i) {
    const double exact = expected(requests_[i]).log_likelihood;
    EXPECT_NEAR(scores[i].log_likelihood, exact, 0.02 * -exact) << i;
  }
}

TEST_F(ScorerTest, StoppedThereIsNothing) {
  int asked = 0;
  EXPECT_TRUE(Scorer(fixture_.model, at::kFloat, 4).score(pointers(), [&] { return ++asked == 3; }).empty());
  EXPECT_EQ(asked, 3);
}

TEST_F(ScorerTest, TheModelTrainsOnAsItDid) {
  fixture_.model.train(true);
  Scorer(fixture_.model, at::kFloat, 4).score(pointers(), never);
  EXPECT_TRUE(fixture_.model.training());
}

TEST_F(ScorerTest, LogitsThatAreNotFiniteAreRefused) {
  const at::NoGradGuard no_grad;
  fixture_.model.parameters().flat_values().fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_ERROR(Scorer(fixture_.model, at::kFloat, 4).score(pointers(), never), ExitCode::numerics, "not finite");
}

}  // namespace
}  // namespace gpt::evaluate
