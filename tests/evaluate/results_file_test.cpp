#include "gpt/evaluate/results_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "core/scratch_folder.h"
#include "evaluate/fixture_model.h"
#include "gpt/evaluate/evaluate.h"
#include "gpt/evaluate/metrics.h"
#include "gpt/evaluate/task_source.h"
#include "support/expect_error.h"

namespace gpt::evaluate {
namespace {

class ResultsFileTest : public testing::Test {
 protected:
  std::string text() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }

  const ScratchFolder folder_;
  const std::string path_ = folder_ / "results.jsonl";
  const ResultsOrigin origin_{"m", "t", "float32"};
  const Outcome choice_{
      .log_likelihoods = {-1.0 / 3, -1e-300}, .acc = 1, .acc_norm = 0, .acc_bytes = 1, .cut = 2, .hash = "h"};
  const Outcome window_{
      .log_likelihoods = {-123.4567890123456}, .tokens = 7, .document = 3, .bytes = 12, .words = 2, .hash = "i"};
};

TEST_F(ResultsFileTest, WhatWasWrittenIsThereAgain) {
  {
    ResultsFile file(path_, origin_);
    EXPECT_TRUE(file.outcomes("arc").empty());
    file.append("arc", Form::choices, choice_);
    file.append("text", Form::text, window_);
    file.append("arc", Form::choices, choice_);
    EXPECT_ERROR(ResultsFile(path_, origin_), ExitCode::config, "writes into it");
  }
  ResultsFile again(path_, origin_);
  ASSERT_EQ(again.outcomes("arc").size(), 2u);
  const Outcome choice = again.outcomes("arc")[1], window = again.outcomes("text").at(0);
  EXPECT_EQ(choice.log_likelihoods, choice_.log_likelihoods);
  EXPECT_EQ(choice.acc, 1);
  EXPECT_EQ(choice.acc_norm, 0);
  EXPECT_EQ(choice.acc_bytes, 1);
  EXPECT_EQ(choice.cut, 2);
  EXPECT_EQ(choice.hash, "h");
  EXPECT_EQ(window.log_likelihoods, window_.log_likelihoods);
  EXPECT_EQ(window.tokens, 7);
  EXPECT_EQ(window.document, 3);
  EXPECT_EQ(window.bytes, 12);
  EXPECT_EQ(window.words, 2);
}

TEST_F(ResultsFileTest, AnUnfinishedLineIsDropped) {
  {
    ResultsFile file(path_, origin_);
    file.append("arc", Form::choices, choice_);
  }
  const std::string whole = text();
  write(whole + whole.substr(whole.find('\n') + 1, 20));
  {
    ResultsFile file(path_, origin_);
    EXPECT_EQ(text(), whole);
    file.append("arc", Form::choices, choice_);
  }
  EXPECT_EQ(ResultsFile(path_, origin_).outcomes("arc").size(), 2u);
}

TEST_F(ResultsFileTest, OthersResultsAreRefused) {
  { ResultsFile file(path_, origin_); }
  const std::string header = text();
  const auto refused = [&](const ResultsOrigin& origin, const std::string& part) {
    EXPECT_ERROR(ResultsFile(path_, origin), ExitCode::config, part);
  };
  refused({"n", "t", "float32"}, "another model");
  refused({"m", "u", "float32"}, "another tokenizer");
  refused({"m", "t", "bfloat16"}, "its results are of dtype float32");
  for (const char* other : {"text\n", "{}\n", "[1]\n", "text", "\n", "{\"program\": 7}\n"}) {
    write(other);
    refused(origin_, "something else than results of gpt-eval");
    EXPECT_EQ(text(), other);
  }
  for (const char* line : {"{}", "1", "x", R"({"task": "arc", "index": 1, "log_likelihoods": [1], "hash": "a"})",
                           R"({"task": "arc", "index": 0, "log_likelihoods": [], "hash": "a"})",
                           R"({"task": "arc", "index": 0, "log_likelihoods": [1], "hash": 5})",
                           R"({"task": "arc", "index": 0, "log_likelihoods": [1], "hash": "a", "acc": "b"})"}) {
    write(header + line + "\n");
    refused(origin_, "line 2 is not the next result of a task");
  }
}

TEST_F(ResultsFileTest, AModelsHashIsOfItsWeightsAndForm) {
  const test::FixtureModel fixture;
  const std::string hash = hash_of(fixture.model);
  EXPECT_EQ(hash, hash_of(test::FixtureModel().model));
  ModelConfig config = fixture.stored.model;
  config.norm_eps *= 2;
  EXPECT_NE(hash, hash_of(model::GPT(config, at::kCPU, fixture.model.parameters().values())));
  EXPECT_NE(hash, hash_of(model::GPT(fixture.stored.model, at::kCPU, uint64_t{1})));
}

TEST_F(ResultsFileTest, AnEvaluationThatWasStoppedGoesOnToTheSameEnd) {
  test::FixtureModel fixture;
  const Encoding encoding(*fixture.tokenizer, 64);
  const Scorer scorer(fixture.model, at::kFloat, 1);  // one batch in 16 requests is soon full
  for (const std::string name : {"hellaswag", "lambada", "wikitext"}) {
    const Task task = parse_task(name + ":" + test::eval_fixture(name + ".jsonl"));
    const auto run = [&](EvaluationOptions options) {
      return evaluate(scorer, *open_task(task, encoding, 16), options);
    };
    const Evaluation whole = run({});
    Evaluation evaluation{.outcomes = {}, .is_complete = false};
    int rounds = 0;
    for (; !evaluation.is_complete; ++rounds) {
      EvaluationOptions options{.known = evaluation.outcomes};
      options.stop = [&](int64_t outcomes) { return outcomes > std::ssize(options.known); };
      const Evaluation next = run(options);
      EXPECT_TRUE(next.is_complete || next.outcomes.size() > evaluation.outcomes.size());
      evaluation = next;
    }
    EXPECT_GT(rounds, 1);
    ASSERT_EQ(evaluation.outcomes.size(), whole.outcomes.size());
    for (size_t i = 0; i < whole.outcomes.size(); ++i)
      EXPECT_EQ(evaluation.outcomes[i].log_likelihoods, whole.outcomes[i].log_likelihoods);
    // Known outcomes must be of these examples.
    EvaluationOptions other{.known = whole.outcomes};
    other.known[1].hash = "other";
    EXPECT_ERROR(run(other), ExitCode::config, "result 1 is not of this input");
    other.known = whole.outcomes;
    other.known.push_back(whole.outcomes[0]);
    EXPECT_ERROR(run(other), ExitCode::config, "is not of this input");
  }
}

TEST_F(ResultsFileTest, ALimitIsOfExamplesAndOfDocuments) {
  test::FixtureModel fixture;
  const Encoding encoding(*fixture.tokenizer, 64);
  const Scorer scorer(fixture.model, at::kFloat, 0);
  const auto count = [&](const std::string& name, int64_t limit) {
    return evaluate(scorer, *open_task(parse_task(name + ":" + test::eval_fixture(name + ".jsonl")), encoding, 64),
                    {.limit = limit})
        .outcomes;
  };
  EXPECT_EQ(count("arc", 5).size(), 5u);
  EXPECT_EQ(count("arc", 1000).size(), 30u);
  const std::vector<Outcome> pages = count("wikitext", 2);
  EXPECT_EQ(pages.back().document, 1);
  EXPECT_GT(pages.back().bytes, 0) << "the whole of it";
}

}  // namespace
}  // namespace gpt::evaluate
