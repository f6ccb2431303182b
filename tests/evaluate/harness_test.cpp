// What lm-evaluation-harness 0.4.13 makes of the same model and the same files (scripts/make_eval_fixtures.py).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "evaluate/fixture_model.h"
#include "gpt/evaluate/evaluate.h"
#include "gpt/evaluate/metrics.h"
#include "gpt/evaluate/task_source.h"
#include "gpt/evaluate/text_source.h"

namespace gpt::evaluate {
namespace {

using test::eval_fixture;

class HarnessTest : public testing::Test {
 protected:
  std::vector<Outcome> outcomes(ExampleSource& source) { return evaluate(scorer_, source).outcomes; }

  std::unique_ptr<ExampleSource> task(const std::string& name) {
    return open_task(parse_task(name + ":" + eval_fixture(name + ".jsonl")), encoding_, encoding_.window);
  }

  // Every metric that the harness has, with its standard error.
  void compare(const std::vector<Metric>& ours, const nlohmann::json& theirs, double tolerance) {
    int compared = 0;
    for (const Metric& metric : ours) {
      if (!theirs.contains(metric.name)) continue;
      const double expected = theirs[metric.name];
      EXPECT_NEAR(metric.value, expected, tolerance * std::max(1.0, expected)) << metric.name;
      if (theirs.contains(metric.name + "_stderr")) {
        EXPECT_NEAR(metric.standard_error.value(), theirs[metric.name + "_stderr"].get<double>(), 1e-12) << metric.name;
      }
      ++compared;
    }
    EXPECT_GE(compared, 2);
  }

  // Sums over at most 64 float32 log-probabilities, of logits that differ in their last digits.
  static constexpr double kTolerance = 1e-4;

  test::FixtureModel fixture_;
  const Encoding encoding_{*fixture_.tokenizer, fixture_.model.config().block_size};
  const Scorer scorer_{fixture_.model, at::kFloat, 5};
  const nlohmann::json expected_ = test::eval_json("expected.json");
};

TEST_F(HarnessTest, AnswersAreChosenAlike) {
  for (const std::string name : {"hellaswag", "arc", "piqa"}) {
    SCOPED_TRACE(name);
    const auto source = task(name);
    const std::vector<Outcome> ours = outcomes(*source);
    const nlohmann::json& theirs = expected_[name];
    ASSERT_EQ(ours.size(), theirs["log_likelihoods"].size());
    int64_t cut = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      const auto likelihoods = theirs["log_likelihoods"][i].get<std::vector<double>>();
      ASSERT_EQ(ours[i].log_likelihoods.size(), likelihoods.size()) << i;
      for (size_t k = 0; k < likelihoods.size(); ++k)
        EXPECT_NEAR(ours[i].log_likelihoods[k], likelihoods[k], kTolerance) << i << ": " << k;
      cut += ours[i].cut;
    }
    EXPECT_GT(cut, 0) << "the fixture has contexts that are too long";
    compare(metrics_of(source->form(), ours, encoding_.window), theirs, 1e-12);
  }
}

TEST_F(HarnessTest, LastWordsAreFoundAlike) {
  const auto source = task("lambada");
  const std::vector<Outcome> ours = outcomes(*source);
  const nlohmann::json& theirs = expected_["lambada"];
  ASSERT_EQ(ours.size(), theirs["log_likelihoods"].size());
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_NEAR(ours[i].log_likelihoods[0], theirs["log_likelihoods"][i][0].get<double>(), kTolerance) << i;
  const double acc = theirs["acc"];
  EXPECT_TRUE(acc > 0.1 && acc < 0.95) << "the fixture tells right from wrong";
  compare(metrics_of(source->form(), ours, encoding_.window), theirs, kTolerance);
}

// The log-likelihood of each document, whose windows are examples of their own here.
std::vector<double> by_document(const std::vector<Outcome>& outcomes) {
  std::vector<double> sums;
  for (const Outcome& outcome : outcomes) {
    sums.resize(outcome.document + 1);
    sums.back() += outcome.log_likelihoods[0];
  }
  return sums;
}

TEST_F(HarnessTest, TextsOfAnyLengthAreAsProbable) {
  for (const std::string name : {"documents", "wikitext"}) {
    SCOPED_TRACE(name);
    const auto source = name == "wikitext"
                            ? task(name)
                            : open_text({eval_fixture("documents.jsonl")}, "text", encoding_, encoding_.window);
    const std::vector<Outcome> ours = outcomes(*source);
    const nlohmann::json& theirs = expected_[name];
    const std::vector<double> sums = by_document(ours);
    ASSERT_EQ(sums.size(), theirs["log_likelihoods"].size());
    for (size_t i = 0; i < sums.size(); ++i) {
      const double expected = theirs["log_likelihoods"][i][0];
      EXPECT_NEAR(sums[i], expected, kTolerance * std::max(1.0, -expected / 64)) << i;
    }
    compare(metrics_of(source->form(), ours, encoding_.window), theirs, kTolerance);
  }
}

TEST_F(HarnessTest, AStrideIsThatOfHuggingFacesLoop) {
  const nlohmann::json theirs = test::eval_json("strided.json");
  const ScratchFolder folder;
  const std::string file = folder.file("strided.txt", theirs["text"]);
  const int64_t window = theirs["window"];
  const auto source = open_text({file}, "text", Encoding(*fixture_.tokenizer, window), theirs["stride"]);
  const std::vector<Outcome> ours = outcomes(*source);
  int64_t tokens = 0;
  for (const Outcome& outcome : ours) tokens += outcome.tokens;
  EXPECT_EQ(tokens, theirs["tokens"].get<int64_t>());
  compare(metrics_of(Form::text, ours, window), theirs, 1e-5);
}

}  // namespace
}  // namespace gpt::evaluate
