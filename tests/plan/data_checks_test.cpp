#include "gpt/plan/data_checks.h"

#include <gtest/gtest.h>

#include "gpt/tokenizer/make_tokenizer.h"
#include "plan/gpt2.h"

namespace gpt::plan {
namespace {

using Status = Check::Status;

// A million characters in sequences of 256, 64 at a time.
struct ShakespeareRun {
  Config config;
  DatasetFacts facts{"text.txt", 1'115'394, 1'003'854, 111'540, 3920, false};

  ShakespeareRun() { config.training.schedule.max_steps = 5000; }
  run::Plan plan() const {
    const int64_t batch_size = config.training.batch_size;
    return run::plan_run(config.training, (facts.samples_per_epoch + batch_size - 1) / batch_size);
  }
};

TEST(CheckDataset, SaysHowMuchOfTheTextIsUsed) {
  ShakespeareRun run;
  EXPECT_EQ(check_dataset(run.config.data, 256, run.facts).detail,
            "text.txt (1.12 MB): 1.00M training and 111.5k validation tokens, 3,920 sequences of 256");
  run.config.data.max_chars = 1000;
  EXPECT_NE(check_dataset(run.config.data, 256, run.facts).detail.find("the first 1,000 characters"),
            std::string::npos);
  run.config.data.max_chars = 2'000'000;
  EXPECT_NE(check_dataset(run.config.data, 256, run.facts).detail.find("more than the text has"), std::string::npos);
}

TEST(CheckSamplePrompt, ACharacterThatTheTextLacksFailsARunThatWritesSamples) {
  data::Corpus corpus;
  corpus.tokenizer = tokenizer::make_tokenizer("char", "abc");
  CadenceConfig cadence;
  cadence.sample_prompt = "ab7";
  EXPECT_EQ(check_sample_prompt(cadence, corpus).status, Status::pass) << "no samples";
  cadence.sample_interval = {5, Interval::Unit::steps};
  const Check check = check_sample_prompt(cadence, corpus);
  EXPECT_EQ(check.status, Status::fail);
  EXPECT_EQ(check.detail.find("training.sample_prompt, byte 2: '7' (U+0037) is not in the vocabulary"), 0u)
      << check.detail;
  cadence.sample_prompt = "ab";
  EXPECT_EQ(check_sample_prompt(cadence, corpus).detail, "samples begin with 2 tokens");
  corpus.tokenizer = nullptr;
  EXPECT_EQ(check_sample_prompt(cadence, corpus).status, Status::pass) << "nothing to write them with";
}

TEST(CheckBatch, ATextSmallerThanABatchIsAWarning) {
  ShakespeareRun run;
  EXPECT_EQ(check_batch(run.config.training, run.facts).status, Status::pass);
  run.facts.samples_per_epoch = 12;
  EXPECT_NE(check_batch(run.config.training, run.facts).fix.find("batch_size: 12,"), std::string::npos);
  run.facts.samples_per_epoch = 200;
  run.config.training.gradient_accumulation_steps = 8;
  EXPECT_EQ(check_batch(run.config.training, run.facts).fix, "set training.gradient_accumulation_steps: 3");
  run.config.training.total_batch_size = 512;
  EXPECT_EQ(check_batch(run.config.training, run.facts).fix, "set training.total_batch_size: 192");
  run.facts.samples_per_epoch = 12;
  EXPECT_NE(check_batch(run.config.training, run.facts).fix.find("total_batch_size: 12 and training.batch_size: 12,"),
            std::string::npos);
}

TEST(CheckLength, CountsTokensStepsAndEpochs) {
  const ShakespeareRun run;
  const Check check = check_length(run.config, run.facts, run.plan());
  EXPECT_EQ(check.status, Status::pass);
  EXPECT_EQ(check.detail, "5,000 steps of 16,384 tokens; an epoch is 62 steps and 1.00M tokens; 80.6 epochs");
}

TEST(CheckLength, HundredsOfEpochsAreAWarning) {
  ShakespeareRun run;
  run.config.training.schedule.max_steps = 50'000;
  const Check check = check_length(run.config, run.facts, run.plan());
  EXPECT_EQ(check.status, Status::warn);
  EXPECT_NE(check.detail.find("806 epochs: the model will memorize the text"), std::string::npos) << check.detail;
  EXPECT_NE(check.fix.find("training.max_steps to about 6,200"), std::string::npos) << check.fix;
}

TEST(CheckLength, AModelWithMoreWeightsThanTokensLearnsThemSooner) {
  ShakespeareRun run;
  run.config.model.vocab_size = 65;  // 10.6M weights, a million tokens, 81 epochs
  const Check check = check_length(run.config, run.facts, run.plan());
  EXPECT_EQ(check.status, Status::warn);
  EXPECT_NE(check.detail.find("with 10.6 weights for each token, will memorize the text"), std::string::npos)
      << check.detail;
  run.config.training.schedule.max_steps = 2000;
  EXPECT_EQ(check_length(run.config, run.facts, run.plan()).status, Status::pass);
}

// How soon a model memorizes its text depends on how many weights it has for each token.
TEST(CheckLength, GPT2MemorizesAMegabyteWithinFewEpochs) {
  ShakespeareRun run;
  run.config.model = gpt2_small();
  run.config.model.vocab_size = 50257;
  run.facts = {"text.txt", 1'000'000, 250'000, 25'000, 244, false};
  run.config.training.batch_size = 8;
  run.config.training.schedule.max_steps = 25 * 31;
  const run::Plan plan = run::plan_run(run.config.training, 31);
  EXPECT_NE(
      check_length(run.config, run.facts, plan).detail.find("25 epochs: the model, with 498 weights for each token"),
      std::string::npos)
      << check_length(run.config, run.facts, plan).detail;
  run.config.training.schedule.max_steps = 4 * 31;
  EXPECT_EQ(check_length(run.config, run.facts, run::plan_run(run.config.training, 31)).status, Status::pass);
}

// As model.preset: auto does, whose own choice for the same text would otherwise seem to be what the advice is against.
TEST(CheckLength, DropoutIsAWayOutToo) {
  ShakespeareRun run;
  run.config.model.vocab_size = 65;
  run.config.model.dropout = 0;
  EXPECT_NE(check_length(run.config, run.facts, run.plan()).fix.find(" with model.dropout: 0.2), or take"),
            std::string::npos);
  run.config.model.dropout = 0.2;
  EXPECT_EQ(check_length(run.config, run.facts, run.plan()).fix.find("dropout"), std::string::npos);
}

// A megabyte and more of programs, whose tokens are longer than estimated; and a short text of many letters, as Chinese has.
TEST(CheckLength, WhatAutoChoosesIsNoWarning) {
  ShakespeareRun run;
  run.config.model.n_layer = 4, run.config.model.n_head = 4, run.config.model.n_embd = 128;
  run.config.model.block_size = 128, run.config.training.batch_size = 16;
  const auto warns_after = [&run](int64_t vocabulary, double dropout, int64_t tokens, bool are_learned, int64_t steps) {
    run.config.model.vocab_size = vocabulary, run.config.model.dropout = dropout;
    run.facts.train_tokens = tokens, run.facts.samples_per_epoch = tokens / 128, run.facts.are_learned = are_learned;
    run.config.training.schedule.max_steps = steps;
    return check_length(run.config, run.facts, run::plan_run(run.config.training, tokens / 2048)).status;
  };
  EXPECT_EQ(warns_after(2048, 0.1, 329'000, true, 1800), Status::pass);
  EXPECT_EQ(warns_after(2048, 0.1, 329'000, true, 3600), Status::warn);
  EXPECT_EQ(warns_after(3500, 0, 315'000, false, 2500), Status::pass);
}

TEST(CheckLength, OddNumbersReadWell) {
  ShakespeareRun run;
  run.config.training.schedule.max_steps = 62;
  EXPECT_NE(check_length(run.config, run.facts, run.plan()).detail.find("; 1 epoch"), std::string::npos);
  run.facts = {"text.txt", 40, 36, 4, 1, false};
  run.config.training.schedule.max_steps = 5000;
  EXPECT_EQ(
      check_length(run.config, run.facts, run.plan()).detail,
      "5,000 steps of 16,384 tokens; an epoch is 1 step and 256 tokens; 5,000 epochs: the model will memorize the text");
}

TEST(CheckLearningRate, TooHighOrNeverReachedIsAWarning) {
  ShakespeareRun run;
  EXPECT_EQ(check_learning_rate(run.config.training, run.plan()).status, Status::pass);
  run.config.training.schedule.warmup_steps = 5000;
  EXPECT_EQ(check_learning_rate(run.config.training, run.plan()).fix, "set training.warmup_steps: 500");
  run.config.training.schedule.warmup_steps = 100;
  run.config.training.schedule.learning_rate = 0.1;
  EXPECT_EQ(check_learning_rate(run.config.training, run.plan()).status, Status::warn);
  run.config.training.schedule.learning_rate = 0.014;
  EXPECT_EQ(check_learning_rate(run.config.training, run.plan()).fix, "set training.learning_rate: 1e-3, or auto");
  run.config.training.optimizer.kind = OptimizerKind::muon;  // whose best rates in short runs are such
  EXPECT_EQ(check_learning_rate(run.config.training, run.plan()).status, Status::pass);
}

TEST(CheckValidation, ItHasToHappenAndItsShareIsTold) {
  ShakespeareRun run;
  EXPECT_EQ(check_validation(run.config, run.facts, run.plan()).detail,
            "every 500 steps over 111.5k of 111.5k tokens (100 %)");
  run.config.training.cadence.eval_batches = 3;
  EXPECT_EQ(check_validation(run.config, run.facts, run.plan()).detail,
            "every 500 steps over 49.2k of 111.5k tokens (44 %)");
  run.config.training.cadence.eval_interval = {6000, Interval::Unit::steps};
  EXPECT_EQ(check_validation(run.config, run.facts, run.plan()).fix, "set training.eval_interval: 500 steps");
  EXPECT_NE(check_validation(run.config, run.facts, run.plan()).detail.find("computed only at its end"),
            std::string::npos);
  run.config.training.schedule.max_steps = 5;
  EXPECT_EQ(check_validation(run.config, run.facts, run.plan()).fix, "set training.eval_interval: 1 step");
  run.config.training.cadence.eval_interval = {0, Interval::Unit::steps};
  EXPECT_EQ(check_validation(run.config, run.facts, run.plan()).status, Status::warn);
  run.config.training.cadence.eval_interval = {500, Interval::Unit::steps};
  run.facts.validation_tokens = 0;
  EXPECT_EQ(check_validation(run.config, run.facts, run.plan()).fix, "set data.validation_fraction: 0.1");
}

TEST(CheckWorkers, NeitherNoneNorMoreThanCores) {
  DataConfig data;
  data.num_workers = 4;
  const auto check = [&](bool resident, bool cuda, int64_t cores) {
    return check_workers(data, resident, cuda, cores);
  };
  EXPECT_EQ(check(false, true, 8).status, Status::pass);
  EXPECT_EQ(check(false, true, 2).fix, "set data.num_workers: auto");
  data.num_workers = 0;
  EXPECT_EQ(check(false, true, 8).status, Status::warn);
  EXPECT_EQ(check(/*resident=*/true, true, 8).status, Status::pass);
  EXPECT_EQ(check(false, /*cuda=*/false, 8).status, Status::pass) << "a worker would take the cores that train";
  data.num_workers.reset();
  EXPECT_EQ(check(false, true, 2).detail, "1 worker on 2 cores");
  EXPECT_EQ(check(false, true, 8).detail, "4 workers on 8 cores");
  EXPECT_EQ(check(false, true, 64).detail, "6 workers on 64 cores");
  EXPECT_EQ(check(false, false, 64).detail, "none: the training builds its batches itself");
  data.prefetch_factor = 0;
  EXPECT_EQ(workers_for(data, true, 64), 0) << "they would prepare nothing";
}

}  // namespace
}  // namespace gpt::plan
