// model.preset: auto: a fixed table that takes the place of what was not written out.
#include "gpt/config/automatic.h"

#include <gtest/gtest.h>

#include "config/faults.h"

namespace gpt::config {
namespace {

constexpr int64_t kMegabyte = 1'000'000;

Config chosen(const Surroundings& surroundings, Config config = {}, const Origins& origins = {}) {
  choose_sizes(config, origins, surroundings);
  validate(config, "test", origins);
  return config;
}

int64_t parameters_of_blocks(const Config& config) {
  return 12 * config.model.n_layer * config.model.n_embd * config.model.n_embd;
}

TEST(AutomaticSizes, GrowWithTheMachine) {
  int64_t before = 0;
  for (const int64_t cores : {1, 4, 8, 16}) {
    const Config config = chosen({.gpu = false, .cores = cores, .characters = kMegabyte});
    EXPECT_GT(parameters_of_blocks(config), before) << cores << " cores";
    before = parameters_of_blocks(config);
  }
  EXPECT_EQ(chosen({.gpu = false, .cores = 3, .characters = kMegabyte}).model.n_embd,
            chosen({.gpu = false, .cores = 2, .characters = kMegabyte}).model.n_embd);
  EXPECT_EQ(chosen({.gpu = true, .cores = 2, .characters = kMegabyte}).training.batch_size, 64);
}

TEST(AutomaticSizes, LeaveTheLengthToTheTime) {
  Config config;
  config.training.schedule.max_time = {600};
  config = chosen({.gpu = false, .cores = 2, .characters = kMegabyte}, config, {{"training.max_time", "--max_time"}});
  EXPECT_EQ(config.training.schedule.max_steps, std::nullopt);
  EXPECT_EQ(config.training.schedule.warmup_steps, std::nullopt) << "a tenth of a length that is not known yet";
  EXPECT_EQ(config.training.cadence.eval_interval, (Interval{10, Interval::Unit::percent}));
  config.training.cadence.eval_interval = {7, Interval::Unit::steps};
  choose_cadence(config, {{"training.eval_interval", "--eval_interval"}});
  EXPECT_EQ(config.training.cadence.eval_interval.count, 7);
  choose_cadence(config, {});
  EXPECT_EQ(config.training.cadence.eval_interval, (Interval{10, Interval::Unit::percent}));
}

TEST(AutomaticSizes, NoTextIsReadMoreThanThirtyTimes) {
  for (const int64_t characters : {30'000, 137'000, 1'115'394}) {
    const Config config = chosen({.gpu = false, .cores = 2, .characters = characters});
    const double tokens =
        static_cast<double>(*config.training.schedule.max_steps * config.training.batch_size * config.model.block_size);
    EXPECT_LE(tokens / (0.9 * static_cast<double>(characters)), 30) << characters;
  }
}

TEST(AutomaticSizes, AreLearnedWithDropoutWhereTheTextIsSeenOften) {
  const auto dropout = [](int64_t characters) {
    return chosen({.gpu = false, .cores = 2, .characters = characters}).model.dropout;
  };
  EXPECT_EQ(dropout(5 * kMegabyte), 0);
  EXPECT_EQ(dropout(kMegabyte), 0);
  EXPECT_GT(dropout(100'000), 0.1);
  for (int64_t characters = 5000; characters < kMegabyte; characters *= 2) {
    const Config config = chosen({.gpu = false, .cores = 2, .characters = characters});
    const double tokens = 0.9 * static_cast<double>(characters),
                 seen = static_cast<double>(*config.training.schedule.max_steps * config.training.batch_size *
                                            config.model.block_size);
    EXPECT_LE(seen / tokens,
              useful_epochs(static_cast<double>(parameters_of_blocks(config)) / tokens, config.model.dropout,
                            /*are_learned=*/false) *
                  1.001)
        << characters;
  }
}

TEST(AutomaticSizes, AreLearnedWithDropoutSoonerWhereTokensAreLearned) {
  const auto dropout = [](double characters_per_token) {
    return chosen({.cores = 2, .characters = kMegabyte, .characters_per_token = characters_per_token}).model.dropout;
  };
  EXPECT_EQ(dropout(1), 0);
  EXPECT_EQ(dropout(2.75), 0.1);
  EXPECT_NEAR(useful_epochs(2, 0, /*are_learned=*/true), 5, 1);
  EXPECT_NEAR(useful_epochs(2, 0.1, /*are_learned=*/true), 9, 1);
}

TEST(AutomaticSizes, EndWhereTheyGetNoBetter) {
  EXPECT_EQ(chosen({.gpu = false, .cores = 2, .characters = kMegabyte}).training.cadence.patience, 5);
  Config named;
  named.model.n_layer = 3;
  named = chosen({.gpu = false, .cores = 2, .characters = kMegabyte}, named, {{"model.n_layer", "--n_layer"}});
  EXPECT_EQ(named.training.cadence.patience, 0);
}

TEST(AutomaticSizes, AShortTextHasAValidationPartLongEnough) {
  for (int64_t characters = 200; characters < kMegabyte; characters *= 2) {
    const Config config = chosen({.gpu = false, .cores = 2, .characters = characters});
    EXPECT_GT(config.data.validation_fraction * static_cast<double>(characters), config.model.block_size + 1)
        << characters;
    EXPECT_GE(*config.training.schedule.max_steps, 100) << characters;
  }
}

TEST(AutomaticSizes, OfALongTextLittleIsKeptForValidation) {
  EXPECT_EQ(chosen({.gpu = false, .cores = 2, .characters = 250 * kMegabyte}).data.validation_fraction, 0.01);
  EXPECT_EQ(chosen({.gpu = false, .cores = 2, .characters = kMegabyte}).data.validation_fraction, 0.1);
}

TEST(AutomaticSizes, TheWarmUpOfARunInEpochsFollowsItsLength) {
  Config config;
  config.training.schedule.epochs = 1;
  config = chosen({.gpu = false, .cores = 2, .characters = 60'000}, config, {{"training.epochs", "test"}});
  EXPECT_EQ(config.training.schedule.warmup_steps, std::nullopt);
  EXPECT_EQ(chosen({.gpu = false, .cores = 2, .characters = kMegabyte}).training.schedule.warmup_steps, 100);
}

TEST(AutomaticSizes, KeysThatAreWrittenOutTakePrecedence) {
  Config config;
  config.training.schedule.max_steps = 7;
  config.training.batch_size = 3;
  config = chosen({.gpu = false, .cores = 2, .characters = kMegabyte}, config,
                  {{"training.max_steps", "--max_steps"}, {"training.batch_size", "--batch_size"}});
  EXPECT_EQ(config.training.schedule.max_steps, 7);
  EXPECT_EQ(config.training.batch_size, 3);
  EXPECT_EQ(config.model.n_embd, 128);
}

TEST(AutomaticSizes, ARunInEpochsStaysOne) {
  Config config;
  config.training.schedule.epochs = 3;
  config = chosen({.gpu = false, .cores = 2, .characters = kMegabyte}, config, {{"training.epochs", "--epochs"}});
  EXPECT_FALSE(config.training.schedule.max_steps);
}

TEST(AutomaticSizes, AreNotChosenWhereASizeIsWrittenOutOrAPresetNamed) {
  Config named;
  named.model.n_layer = 3;
  named = chosen({.gpu = false, .cores = 2, .characters = kMegabyte}, named, {{"model.n_layer", "--n_layer"}});
  EXPECT_EQ(named.model.n_embd, ModelConfig{}.n_embd);
  EXPECT_EQ(named.model.preset, Preset::none);
  Config preset;
  preset.model.preset = Preset::char_small;
  apply_preset(preset.model);
  preset = chosen({.gpu = false, .cores = 2, .characters = kMegabyte}, preset, {{"model.preset", "--preset"}});
  EXPECT_EQ(preset.model.n_embd, 384);
}

TEST(AutomaticSizes, ARunKeepsTheSeparatorOfItsDocuments) {
  Config saved, now;
  saved.data.document_separator = "none";
  keep_choices(now, {}, saved);
  EXPECT_EQ(now.data.document_separator, "none");
  now.data.document_separator = "---";
  keep_choices(now, {{"data.document_separator", "--document_separator"}}, saved);
  EXPECT_EQ(now.data.document_separator, "---") << "which is another run";
}

TEST(AutomaticSizes, OfARunThatGoesOnAreNeverChosenAgain) {
  const Config saved = chosen({.gpu = false, .cores = 8, .characters = kMegabyte});
  Config now = chosen({.gpu = false, .cores = 2, .characters = 2 * kMegabyte});
  keep_choices(now, {}, saved);
  EXPECT_TRUE(difference(saved, now).empty());
  Config longer = chosen({.gpu = false, .cores = 2, .characters = kMegabyte});
  longer.training.schedule.max_steps = 9000;
  keep_choices(longer, {{"training.max_steps", "--max_steps"}}, saved);
  EXPECT_EQ(longer.training.schedule.max_steps, 9000);
  EXPECT_EQ(longer.model.n_embd, saved.model.n_embd);
}

TEST(AutomaticSizes, AmpModeStaysWhatItWasUnlessAnotherIsNamed) {
  Config saved, now;
  saved.training.precision.amp_mode = AmpMode::autocast;
  keep_choices(now, {{"model.n_layer", "--n_layer"}}, saved);
  EXPECT_EQ(now.training.precision.amp_mode, AmpMode::autocast);
  now.training.precision.amp_mode = AmpMode::automatic;
  keep_choices(now, {{"training.amp_mode", "all.yaml:7"}}, saved);  // as --print-config writes it
  EXPECT_EQ(now.training.precision.amp_mode, AmpMode::autocast);
  now.training.precision.amp_mode = AmpMode::end_to_end;
  keep_choices(now, {{"training.amp_mode", "--amp_mode"}}, saved);
  EXPECT_EQ(now.training.precision.amp_mode, AmpMode::end_to_end);
}

TEST(AutomaticSizes, DtypeStaysWhatWasChosenUnlessAnotherIsNamed) {
  Config saved, now;
  saved.training.precision.dtype = Dtype::float32;  // chosen by a device without bfloat16
  keep_choices(now, {}, saved);
  EXPECT_EQ(now.training.precision.dtype, Dtype::float32);
  EXPECT_TRUE(difference(saved, now).empty());
  now.training.precision.dtype = Dtype::bfloat16;
  keep_choices(now, {{"training.dtype", "--dtype"}}, saved);
  EXPECT_EQ(now.training.precision.dtype, Dtype::bfloat16);
  now = {};
  now.training.precision.use_amp = false;  // another run, whose dtype is that of the saved one no more
  keep_choices(now, {{"training.use_amp", "--use_amp"}}, saved);
  EXPECT_EQ(now.training.precision.dtype, Dtype::automatic);
}

TEST(AutomaticSizes, LeavePrecisionToTheDevice) {
  for (const bool gpu : {false, true}) {
    const PrecisionConfig precision = chosen({.gpu = gpu, .cores = 2, .characters = kMegabyte}).training.precision;
    EXPECT_TRUE(precision.use_amp) << gpu;
    EXPECT_EQ(precision.dtype, Dtype::automatic) << gpu;
  }
}

TEST(AutomaticSizes, ARunThatWasChosenInFloat32GoesOnInIt) {
  Config saved = chosen({.gpu = false, .cores = 2, .characters = kMegabyte});
  saved.training.precision.use_amp = false;
  Config now = chosen({.gpu = false, .cores = 2, .characters = kMegabyte});
  keep_choices(now, {}, saved);
  EXPECT_FALSE(now.training.precision.use_amp);
}

std::string tokenizer_of(const Surroundings& surroundings, Config config = {}, const Origins& origins = {}) {
  choose_tokenizer(config, origins, surroundings);
  return config.data.tokenizer;
}

TEST(AutomaticSizes, AreThoseOfTokensThatALongTextShows) {
  const auto in_steps = [](int64_t characters, int64_t steps) {
    Config config;
    config.training.schedule.max_steps = steps;
    return tokenizer_of({.cores = 2, .characters = characters}, config, {{"training.max_steps", "--max_steps"}});
  };
  EXPECT_EQ(in_steps(400'000, 100), "char");
  EXPECT_EQ(in_steps(600'000, 100), "bpe:1024");
  EXPECT_EQ(in_steps(kMegabyte, 100), "bpe:2048");
  EXPECT_EQ(in_steps(3 * kMegabyte, 100), "bpe:4096");
  EXPECT_EQ(in_steps(kMegabyte, 1800), "bpe:1024") << "of which there are more";
  EXPECT_EQ(in_steps(kMegabyte, 3000), "char");
}

TEST(AutomaticSizes, AreThoseOfCharactersWhereTokensWouldBeMemorized) {
  EXPECT_EQ(tokenizer_of({.cores = 2, .characters = 600'000}), "char");
  EXPECT_EQ(tokenizer_of({.cores = 2, .characters = kMegabyte}), "bpe:2048") << "the run ends sooner";
  EXPECT_EQ(tokenizer_of({.cores = 2, .characters = 5 * kMegabyte}), "bpe:4096");
  const Surroundings text{.cores = 2, .characters = 1'100'000};
  Config config;
  config.training.schedule.max_time = {60};
  EXPECT_EQ(tokenizer_of(text, config), "bpe:2048");
  config.training.schedule.max_time = {3600};
  EXPECT_EQ(tokenizer_of(text, config), "char");
  config = {}, config.training.schedule.epochs = 3;
  EXPECT_EQ(tokenizer_of(text, config), "bpe:2048");
  config.training.schedule.epochs = 20;
  EXPECT_EQ(tokenizer_of(text, config), "char");
  config = {}, config.training.batch_size = 2;
  EXPECT_EQ(tokenizer_of(text, config, {{"training.batch_size", "--batch_size"}}), "bpe:2048");
  config = {}, config.training.total_batch_size = 2;
  EXPECT_EQ(tokenizer_of(text, config), "bpe:2048");
}

TEST(AutomaticSizes, AreThoseOfCharactersWhereTokensAreGivenOrWereNotMeasured) {
  const Surroundings book{.cores = 2, .characters = 10 * kMegabyte};
  const auto with = [&](auto change, const Origins& origins = {}) {
    Config config;
    change(config);
    return tokenizer_of(book, config, origins);
  };
  EXPECT_EQ(with([](Config&) {}), "bpe:4096");
  EXPECT_EQ(with([](Config&) {}, {{"data.tokenizer", "--tokenizer"}}), "char");
  EXPECT_EQ(with([](Config& c) { c.model.vocab_size = 65; }, {{"model.vocab_size", "--vocab_size"}}), "char");
  EXPECT_EQ(with([](Config&) {}, {{"model.n_layer", "--n_layer"}}), "char") << "nothing is chosen";
  EXPECT_EQ(with([](Config& c) { c.data.bin = "a.bin"; }), "char");
  EXPECT_EQ(with([](Config& c) { c.training.init_from = "a"; }), "char");
  EXPECT_EQ(with([](Config& c) { c.training.distillation.from = "a"; }), "char");
  Surroundings other = book;
  other.gpu = true;
  EXPECT_EQ(tokenizer_of(other), "char");
  other = book, other.has_conversations = true;
  EXPECT_EQ(tokenizer_of(other), "char");
  other = book, other.is_utf8 = false;
  EXPECT_EQ(tokenizer_of(other), "char") << "which refuses it, with what to do";
}

TEST(AutomaticSizes, ARunThatBeganWithCharactersKeepsThem) {
  Config saved = chosen({.cores = 2, .characters = kMegabyte}), now = saved;
  choose_tokenizer(now, {}, {.cores = 2, .characters = 10 * kMegabyte});
  EXPECT_EQ(now.data.tokenizer, "bpe:4096");
  keep_choices(now, {}, saved);
  EXPECT_EQ(now.data.tokenizer, "char");
  std::swap(saved, now);
  saved.data.tokenizer = "bpe:1024";
  keep_choices(now, {}, saved);
  EXPECT_EQ(now.data.tokenizer, "bpe:1024");
  now.data.tokenizer = "byte";
  keep_choices(now, {{"data.tokenizer", "--tokenizer"}}, saved);
  EXPECT_EQ(now.data.tokenizer, "byte");
}

TEST(AutomaticSizes, OfAModelThatIsGivenOnlyTheRestIsChosen) {
  Config config;
  config.training.init_from = "a/ckpt.pt";
  config.model.n_layer = 3;
  config.model.block_size = 64;
  const Config longer = chosen({.gpu = false, .cores = 2, .characters = 40'000}, config);
  EXPECT_EQ(longer.model.n_layer, 3);
  EXPECT_EQ(longer.model.block_size, 64);
  EXPECT_EQ(longer.training.batch_size, 16);
  config.model.block_size = 128;
  const Config half = chosen({.gpu = false, .cores = 2, .characters = 40'000}, config);
  EXPECT_NEAR(static_cast<double>(*longer.training.schedule.max_steps) / 2,
              static_cast<double>(*half.training.schedule.max_steps), 100)
      << "as many epochs of shorter sequences";
  EXPECT_EQ(longer.model.dropout, 0) << "a trained model is tuned for a few epochs";
}

TEST(AutomaticSizes, AModelThatIsGivenReadsAsMuchAsTextMemoryAndTheTableAllow) {
  Config config;
  config.training.init_from = "a/model";
  config.model.block_size = 8192;
  const Surroundings diary{.cores = 2, .characters = 60'000, .characters_per_token = 4};
  Surroundings book{.cores = 2, .characters = 10 * kMegabyte, .characters_per_token = 4};
  EXPECT_EQ(chosen(diary, config).sequence_length(), 256) << "validation has four of 1,500 tokens";
  EXPECT_EQ(chosen(diary, config).model.block_size, 8192) << "the model keeps its context";
  EXPECT_EQ(chosen(book, config).sequence_length(), 2048) << "as many tokens at a time as without a model";
  EXPECT_EQ(chosen(book, config).training.batch_size, 1);
  book.fits = [](const Config& c) { return c.training.batch_size * c.sequence_length() <= 600; };
  EXPECT_EQ(chosen(book, config).sequence_length(), 512);
  config.model.block_size = 1000;
  const Origins written{{"model.block_size", "--block_size"}};
  EXPECT_EQ(chosen(diary, config, written).sequence_length(), 1000);
  EXPECT_EQ(chosen(diary, config, written).training.sequence_length, std::nullopt);
  EXPECT_EQ(chosen(diary, config, written).training.batch_size, 2);
  EXPECT_EQ(chosen(book, config, written).training.batch_size, 1);
  Config saved = chosen(diary, config), now = config;
  saved.training.batch_size = 7;
  keep_choices(now, written, saved);
  EXPECT_EQ(now.training.batch_size, 7) << "a run goes on with what was chosen, though one length was written out";
}

TEST(AutomaticSizes, ConversationsAreLearnedInShortSequences) {
  const auto length = [](Config config, const Surroundings& here, const Origins& origins = {}) {
    choose_sequence_length(config, origins, here);
    return config.sequence_length();
  };
  const Surroundings chats{.cores = 2, .characters = 10 * kMegabyte, .has_conversations = true};
  Config config;
  config.model.block_size = 2048;
  EXPECT_EQ(length(config, chats), 512);
  EXPECT_EQ(length(config, {.cores = 2}), 2048) << "texts are learned in sequences of all that the model sees";
  config.training.sequence_length = 1024;
  EXPECT_EQ(length(config, chats, {{"training.sequence_length", "--sequence_length"}}), 1024);
  config.training.sequence_length.reset();
  config.model.block_size = 64;
  EXPECT_EQ(length(config, chats), 64);
  config.model.block_size = 2048, config.training.init_from = "a/model";
  choose_sequence_length(config, {}, chats);
  config = chosen(chats, config);
  EXPECT_EQ(config.sequence_length(), 512);
  EXPECT_EQ(config.training.batch_size, 4) << "as many tokens at a time as without a model";
  Config now;
  now.training.init_from = "a/model", now.model.block_size = 2048, now.training.sequence_length = 300;
  keep_choices(now, {}, config);
  EXPECT_EQ(now.sequence_length(), 512) << "a run goes on with what was chosen";
}

TEST(AutomaticSizes, ATrainedModelIsTunedGently) {
  Config config = from_yaml("training: {init_from: a, max_steps: 2000}\n");
  choose_tuning(config, {});
  EXPECT_EQ(config.training.schedule.learning_rate, 1e-4);
  EXPECT_EQ(config.training.schedule.min_lr, 1e-5);
  EXPECT_EQ(config.training.schedule.warmup_steps, 100);
  EXPECT_EQ(config.model.dropout, 0);
  Config written = from_yaml(
      "training: {init_from: a, max_steps: 20, learning_rate: 3e-5, warmup_steps: 7}\nmodel: {dropout: 0.3}\n");
  choose_tuning(written, {{"training.learning_rate", ""}, {"training.warmup_steps", ""}, {"model.dropout", ""}});
  EXPECT_EQ(written.training.schedule.learning_rate, 3e-5);
  EXPECT_NEAR(written.training.schedule.min_lr, 3e-6, 1e-12);
  EXPECT_EQ(written.training.schedule.warmup_steps, 7);
  EXPECT_EQ(written.model.dropout, 0.3);
  Config scratch;
  choose_tuning(scratch, {});
  EXPECT_EQ(scratch.training.schedule.learning_rate, Config().training.schedule.learning_rate);
}

TEST(AutomaticOptimizer, IsMuonOnOneCpu) {
  const Surroundings here{.cores = 2, .characters = kMegabyte};
  const TrainingConfig training = chosen(here).training;
  EXPECT_EQ(training.optimizer.kind, OptimizerKind::muon);
  EXPECT_EQ(training.schedule.learning_rate, 4e-3);
  EXPECT_EQ(training.schedule.min_lr, 1e-4);
  EXPECT_EQ(training.schedule.lr_schedule, LrSchedule::wsd);
  for (const Surroundings& other : {Surroundings{.gpu = true, .characters = kMegabyte},
                                    Surroundings{.cores = 2, .processes = 2, .characters = kMegabyte}}) {
    const TrainingConfig there = chosen(other).training;
    EXPECT_EQ(there.optimizer.kind, OptimizerKind::adamw) << other.processes;
    EXPECT_EQ(there.schedule.learning_rate, 1e-3) << other.processes;
    EXPECT_EQ(there.schedule.lr_schedule, LrSchedule::cosine) << other.processes;
  }
  Config given;
  given.training.init_from = "a/ckpt.pt";
  EXPECT_EQ(chosen(here, given).training.optimizer.kind, OptimizerKind::adamw) << "a trained model is tuned";
  Config named;
  named = chosen(here, named, {{"model.n_layer", "--n_layer"}});
  EXPECT_EQ(named.training.optimizer.kind, OptimizerKind::adamw) << "sizes are written out";
}

TEST(AutomaticOptimizer, GoesWithWhatIsWrittenOut) {
  const auto with = [](const std::string& training, const Origins& origins) {
    return chosen({.cores = 2, .characters = kMegabyte}, from_yaml("training: {" + training + "}\n"), origins).training;
  };
  const TrainingConfig adamw = with("optimizer: adamw", {{"training.optimizer", ""}});
  EXPECT_EQ(adamw.optimizer.kind, OptimizerKind::adamw);
  EXPECT_EQ(adamw.schedule.learning_rate, 2e-3);
  EXPECT_EQ(with("optimizer: normuon", {{"training.optimizer", ""}}).schedule.learning_rate, 4e-3);

  const TrainingConfig rate = with("learning_rate: 6e-3", {{"training.learning_rate", ""}});
  EXPECT_EQ(rate.optimizer.kind, OptimizerKind::adamw) << "whose rate it most likely is";
  EXPECT_EQ(rate.schedule.learning_rate, 6e-3);
  const TrainingConfig found = with("learning_rate: auto", {{"training.learning_rate", ""}});
  EXPECT_EQ(found.optimizer.kind, OptimizerKind::muon);
  EXPECT_TRUE(found.schedule.finds_learning_rate);

  const TrainingConfig cosine = with("lr_schedule: cosine", {{"training.lr_schedule", ""}});
  EXPECT_EQ(cosine.schedule.lr_schedule, LrSchedule::cosine);
  EXPECT_EQ(cosine.optimizer.kind, OptimizerKind::muon);
  EXPECT_EQ(with("fused_adamw: false", {{"training.fused_adamw", ""}}).optimizer.kind, OptimizerKind::adamw)
      << "Muon is refused with it";
}

TEST(AutomaticOptimizer, OfARunThatGoesOnIsTheOneItBeganWith) {
  const Surroundings here{.cores = 2, .characters = kMegabyte};
  Config older = chosen(here);  // as an earlier version chose
  older.training.optimizer.kind = OptimizerKind::adamw;
  older.training.schedule.learning_rate = 1e-3;
  older.training.schedule.lr_schedule = LrSchedule::cosine;
  Config now = chosen(here);
  keep_choices(now, {}, older);
  EXPECT_TRUE(difference(older, now).empty());

  const Origins written{{"training.learning_rate", "--learning_rate"}};
  Config slower = chosen(here, from_yaml("training: {learning_rate: 5e-4}\n"), written);
  keep_choices(slower, written, chosen(here));
  EXPECT_EQ(slower.training.optimizer.kind, OptimizerKind::muon);
  EXPECT_EQ(slower.training.schedule.learning_rate, 5e-4);
}

TEST(AutomaticSizes, TokensOfSeveralCharactersAreFewer) {
  const auto steps = [](double characters_per_token) {
    return *chosen({.gpu = false, .cores = 2, .characters = 100'000, .characters_per_token = characters_per_token})
                .training.schedule.max_steps;
  };
  EXPECT_GT(steps(1), 2 * steps(4));
}

TEST(AutomaticSizes, ARunThatBeganWithWeightsKeepsTheirModel) {
  Config saved;
  saved.training.init_from = "/a/ckpt.pt";
  saved.model.norm = Norm::layernorm;
  saved.model.n_layer = 3;
  saved.model.vocab_size = 65;
  saved.training.schedule.learning_rate = 2e-4;
  Config now;
  now.model.preset = Preset::none;
  keep_choices(now, {}, saved);
  EXPECT_EQ(now.training.schedule.learning_rate, 2e-4) << "a tuning's, though --init_from was left out";
  EXPECT_EQ(now.model.norm, Norm::layernorm);
  EXPECT_EQ(now.model.vocab_size, 65);
  EXPECT_EQ(now.training.init_from, "/a/ckpt.pt");
  Config other;
  other.training.init_from = "/b/ckpt.pt";
  keep_choices(other, {{"training.init_from", "--init_from"}}, saved);
  EXPECT_EQ(other.training.init_from, "/b/ckpt.pt") << "another run, which is refused";
}

TEST(AutomaticLearningRate, ARunThatGoesOnHasTheOneThatWasFound) {
  Config saved = from_yaml("training: {learning_rate: 0.0021}\n"), now = from_yaml("training: {lr: auto}\n");
  EXPECT_TRUE(now.training.schedule.finds_learning_rate);
  EXPECT_NE(dump(now).find("  learning_rate: auto "), std::string::npos);
  keep_choices(now, {{"training.learning_rate", "c.yaml:1:12"}}, saved);
  EXPECT_FALSE(now.training.schedule.finds_learning_rate);
  EXPECT_EQ(now.training.schedule.learning_rate, 0.0021);
  EXPECT_TRUE(difference(saved, now).empty());
  EXPECT_TRUE(difference(saved, from_yaml("training: {lr: auto}\n")).front().safe_on_resume);
}

TEST(KeepChoices, GrowingSequencesOfALongerRunStayWhereTheyWere) {
  Config saved, now;
  saved.data.schedule = now.data.schedule = DataSchedule::grow;
  saved.data.stages = growing_stages(64, 300), now.data.stages = growing_stages(64, 600);
  Config own = now;
  keep_choices(now, {}, saved);
  EXPECT_EQ(now.data.stages, saved.data.stages);
  keep_choices(own, {{"data.stages", "a.yaml:3"}}, saved);
  EXPECT_NE(own.data.stages, saved.data.stages) << "they were written by the user";
}

}  // namespace
}  // namespace gpt::config
