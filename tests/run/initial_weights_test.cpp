// training.init_from: what a new run takes of a checkpoint, and what it refuses. tests/e2e/test_init_from.py has what its user sees.
#include "gpt/run/initial_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "config/faults.h"
#include "core/scratch_folder.h"
#include "gpt/checkpoint/checkpoint.h"
#include "gpt/core/error.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "train/tiny_run.h"

namespace gpt::run {
namespace {

class InitialWeightsTest : public testing::Test {
 protected:
  InitialWeightsTest() {
    source_config_ = tiny_config(corpus_);
    source_config_.model.norm = Norm::layernorm;
    State state(source_config_, corpus_, at::kCPU, device::Precision{});
    state.step = 5;
    checkpoint_ = state.capture();
    checkpoint::save_checkpoint(path_, checkpoint_);
    config_.training.init_from = path_;
    config_.output_dir = root_ / "new";
  }

  double take(const config::Origins& origins = {}) { return take_model(config_, origins); }
  std::string refusal(const config::Origins& origins) {
    return config::fault_of([&] { take(origins); });
  }

  const ScratchFolder root_;
  const std::string path_ = std::filesystem::weakly_canonical(root_.file("run/ckpt.pt", "")).string();
  const data::Corpus corpus_ = some_corpus();
  Config source_config_, config_;
  checkpoint::Checkpoint checkpoint_;
};

TEST_F(InitialWeightsTest, TheModelIsTheCheckpointsAndDropoutTheRuns) {
  config_.model.dropout = 0;
  EXPECT_EQ(take(), 1) << "a token is a character";
  EXPECT_EQ(config_.model.n_layer, 2);
  EXPECT_EQ(config_.model.norm, Norm::layernorm);
  EXPECT_EQ(config_.model.vocab_size, corpus_.vocab_size);
  EXPECT_EQ(config_.model.dropout, 0);
}

TEST_F(InitialWeightsTest, AFolderStandsForItsCheckpointWhereverTheProgramRuns) {
  config_.training.init_from = root_ / "run";
  take();
  EXPECT_EQ(config_.training.init_from, path_);
}

TEST_F(InitialWeightsTest, KeysThatContradictTheCheckpointAreNamed) {
  config_.model.n_layer = 3;
  config_.model.n_embd = 16;
  config_.model.n_kv_head = 2;  // what auto stands for there
  EXPECT_EQ(
      refusal({{"model.n_layer", "--n_layer"}, {"model.n_embd", "--n_embd"}, {"model.n_kv_head", "--n_kv_head"}}),
      "training.init_from: " + path_ +
          " has another model: model.n_layer 3 (the checkpoint has 2); leave such keys out, since the sizes come from "
          "the checkpoint");
  config_.model.preset = Preset::gpt2_small;
  apply_preset(config_.model);
  EXPECT_NE(refusal({{"model.preset", "--preset"}}).find("model.n_embd 768 (the checkpoint has 16)"),
            std::string::npos);
}

TEST_F(InitialWeightsTest, SequencesMayBeShorterThanTheCheckpoints) {
  const config::Origins written{{"model.block_size", "--block_size"}};
  const int64_t longest = source_config_.model.block_size;
  config_.model.block_size = longest + 1;
  EXPECT_NE(refusal(written).find(fmt::format("model.block_size {} (the checkpoint has {})", longest + 1, longest)),
            std::string::npos);
  config_.model.dropout = source_config_.model.dropout = 0;
  for (const Position position : {Position::rope, Position::learned}) {
    source_config_.model.position = position;
    const State source(source_config_, corpus_, at::kCPU, device::Precision{});
    checkpoint::save_checkpoint(path_, source.capture());
    config_.model.block_size = 4;
    take(written);
    EXPECT_EQ(config_.model.block_size, 4);
    const InitialWeights initial = initial_weights(checkpoint::load_checkpoint(path_), config_, written);
    const model::GPT shorter(config_.model, at::kCPU, initial.model);
    const at::NoGradGuard no_grad;
    const at::Tensor ids = at::arange(4).view({1, 4});
    EXPECT_TRUE(shorter.forward(ids).allclose(source.model.forward(ids), 1e-4, 1e-5)) << "by other operators";
  }
}

TEST_F(InitialWeightsTest, AModelMayLearnToChooseBlocks) {
  config_.model.attention = AttentionForm::blocks;
  config_.model.attention_top_blocks = 2;
  take({{"model.attention", "--model.attention"}});
  EXPECT_EQ(config_.model.attention, AttentionForm::blocks);
  EXPECT_EQ(config_.model.attention_top_blocks, 4) << "it was not written out";
  config_.model.attention_window = 3;
  EXPECT_EQ(refusal({{"model.attention", "--model.attention"}, {"model.attention_window", "--attention_window"}}),
            "training.init_from: with the model of " + path_ +
                ", model.attention blocks chooses what a token sees, and attention_window 3 hides it by distance; set "
                "attention_window to 0, or model.attention to full");
}

TEST_F(InitialWeightsTest, WindowsAreTheCheckpointsUnlessTheRunSetsThem) {
  take();
  EXPECT_EQ(config_.model.attention_window, 0);
  config_.model.attention_window = 3;
  config_.model.window_pattern = "SL";
  take({{"model.attention_window", "--attention_window"}});
  EXPECT_EQ(config_.model.attention_window, 3);
  EXPECT_EQ(config_.model.window_pattern, "SSSL") << "it was not written out";
  config_.model.window_pattern = "SL";
  take({{"model.window_pattern", "c.yaml:3:3"}});
  EXPECT_EQ(config_.model.attention_window, 0);
  EXPECT_EQ(config_.model.window_pattern, "SL");
}

TEST_F(InitialWeightsTest, AFileThatIsNotThereIsMissedOnlyByANewRun) {
  std::filesystem::remove(path_);
  EXPECT_THROW(take(), Error);
  root_.file("new/ckpt.pt", "");
  EXPECT_EQ(take(), 1);
}

TEST_F(InitialWeightsTest, ForAnotherTokenizerRowsAreMatchedByText) {
  const config::Origins written{{"data.tokenizer", "--tokenizer"}};
  config_.data.tokenizer = "char";
  take(written);
  EXPECT_EQ(config_.model.vocab_size, corpus_.vocab_size) << "the same kind";
  config_.data.tokenizer = "byte";
  EXPECT_EQ(take(written), 1);
  EXPECT_EQ(config_.model.vocab_size, std::nullopt);
  InitialWeights initial = initial_weights(checkpoint::load_checkpoint(path_), config_, written);
  EXPECT_TRUE(initial.changes_tokenizer);
  config_.data.text = root_.file("other.txt", "3 is no square, it is \xC3\xA4 prime, and so is 11.\n");
  config_.data.cache_dir = root_ / "cache";
  config_.data.validation_fraction = 0;
  test::CapturedLog log;
  const data::Corpus corpus = load_corpus_for(initial, config_);
  EXPECT_EQ(corpus.vocab_size, 256);
  const std::string said = log.text(),
                    expected = fmt::format("{} tokens keep the rows of tokens with the same text, {} new ones",
                                           corpus_.vocab_size, 256 - corpus_.vocab_size);
  EXPECT_NE(said.find(expected), std::string::npos) << said;
  const at::Tensor before = checkpoint_.model[0].second.detach(), after = initial.model[0].second;
  ASSERT_EQ(initial.model[0].first, "transformer.wte.weight");
  EXPECT_EQ(after.size(0), 256);
  const auto row_before = [&](const char* text) { return before[corpus_.tokenizer->encode(text)[0]]; };
  EXPECT_TRUE(after['s'].equal(row_before("s")));
  EXPECT_TRUE(after['1'].equal(row_before("1")));
  EXPECT_TRUE(after[0xC3].allclose(before.narrow(0, 0, corpus_.vocab_size).mean(0))) << "a new one";
  config_.model.vocab_size = corpus.vocab_size;
  (void)model::GPT(config_.model, at::kCPU, initial.model);  // throws where shapes do not fit
}

TEST_F(InitialWeightsTest, ConversationsBringTokensWhoseRowsAreMeans) {
  for (const int64_t unused : {0, 5}) {
    config_.model.vocab_size.reset();
    checkpoint::Checkpoint checkpoint = checkpoint_;
    checkpoint.config.model.vocab_size = corpus_.vocab_size + unused;
    checkpoint.config.model.vocab_multiple = 1;
    const at::Tensor rows = checkpoint.model[0].second.detach().narrow(0, 0, corpus_.vocab_size);
    checkpoint.model[0].second = at::cat({rows, at::ones({unused, rows.size(1)})});
    checkpoint::save_checkpoint(path_, checkpoint);
    take();
    InitialWeights initial = initial_weights(checkpoint::load_checkpoint(path_, checkpoint::Parts::model), config_, {});
    config_.data.text = root_.file("chats.jsonl", R"({"prompt": "1 2", "completion": "is"})");
    // The model knows no letters for the names of roles.
    config_.data.chat_template =
        root_.file("turns.jinja",
                   "{% for turn in messages %}<|im_start|>{{ turn.content }}<|im_end|>{% endfor %}"
                   "{% if add_generation_prompt %}<|im_start|>{% endif %}");
    config_.data.cache_dir = root_ / "cache";
    test::CapturedLog log;
    const data::Corpus corpus = load_corpus_for(initial, config_);
    const int64_t first = corpus_.vocab_size;
    EXPECT_EQ(corpus.vocab_size, first + 2);
    EXPECT_EQ(config_.model.vocab_size, std::max(first + 2, first + unused)) << "unused ids are taken first";
    EXPECT_NE(log.text().find("The rows of 2 new tokens begin with the mean of all others"), std::string::npos)
        << log.text();
    const at::Tensor after = initial.model[0].second;
    EXPECT_EQ(after.size(0), *config_.model.vocab_size);
    EXPECT_TRUE(after.narrow(0, 0, first).equal(rows));
    for (const int64_t id : {first, first + 1}) EXPECT_TRUE(after[id].allclose(rows.mean(0)));
    if (unused > 2) { EXPECT_TRUE(after[first + 2].equal(at::ones({rows.size(1)}))); }
    (void)model::GPT(config_.model, at::kCPU, initial.model);  // throws where shapes do not fit
    // A run that goes on has the vocabulary in its effective configuration, and so have the other processes.
    config_.training.init_from = path_;
    take({{"model.vocab_size", "effective_config.yaml"}});
    EXPECT_EQ(config_.model.vocab_size, std::max(first + 2, first + unused));
  }
}

TEST_F(InitialWeightsTest, WithoutATokenizerNothingCanBeMatched) {
  checkpoint_.tokenizer.clear();
  checkpoint_.config.data.bin = "ids.bin";
  checkpoint::save_checkpoint(path_, checkpoint_);
  const config::Origins written{{"data.tokenizer", "--tokenizer"}};
  config_.data.tokenizer = "byte";
  take(written);
  InitialWeights initial = initial_weights(checkpoint::load_checkpoint(path_), config_, written);
  config_.data.text = root_.file("other.txt", std::string(100, 'x'));
  config_.data.cache_dir = root_ / "cache";
  config_.data.validation_fraction = 0;
  EXPECT_ERROR(load_corpus_for(initial, config_), ExitCode::config, "cannot be matched with another tokenizer's");
}

TEST_F(InitialWeightsTest, ARunBeginsWithTheWeightsAndNothingElse) {
  take();
  Config config = config_;
  config.training.batch_size = 4;
  config.training.precision.use_amp = false;
  const InitialWeights initial = initial_weights(checkpoint::load_checkpoint(path_), config, {});
  EXPECT_EQ(initial.step, 5);
  const checkpoint::Checkpoint begun =
      State(config, corpus_, at::kCPU, device::Precision{}, {.start = {}, .initial = initial}).capture();
  const checkpoint::Checkpoint drawn = State(config, corpus_, at::kCPU, device::Precision{}).capture();
  expect_equal(begun.model, checkpoint_.model);
  EXPECT_EQ(begun.step, 0);
  EXPECT_EQ(begun.optimizer.step_count.item<float>(), 0);
  EXPECT_EQ(begun.data_sample, drawn.data_sample);
  EXPECT_TRUE(begun.rng.at("cpu").equal(drawn.rng.at("cpu")));
}

TEST_F(InitialWeightsTest, TextIsEncodedWithTheCheckpointsTokenizer) {
  take();
  InitialWeights initial = initial_weights(checkpoint::load_checkpoint(path_), config_, {});
  config_.data.text = root_.file("other.txt", std::string(40, '1') + " is the square of 2.\n");
  config_.data.cache_dir = root_ / "cache";
  config_.data.validation_fraction = 0;
  const data::Corpus corpus = load_corpus_for(initial, config_);
  EXPECT_EQ(corpus.tokenizer->to_json(), corpus_.tokenizer->to_json());
  config_.data.text = root_.file("strange.txt", "ÄÖÜ is not known there\n");
  EXPECT_THROW((void)load_corpus_for(initial, config_), Error);
}

TEST_F(InitialWeightsTest, TheFormatOfTextsComesWithTheModelAndIsSaved) {
  checkpoint_.text_format = tokenizer::TextFormat{.begin = 1, .pad = 2, .ends = {3}, .chat_template = "{{ messages }}"};
  checkpoint::save_checkpoint(path_, checkpoint_);
  take();
  InitialWeights initial = initial_weights(checkpoint::load_checkpoint(path_), config_, {});
  config_.data.text = root_.file("other.txt", std::string(40, '1') + " is the square of 2.\n");
  config_.data.cache_dir = root_ / "cache";
  config_.data.validation_fraction = 0;
  const data::Corpus corpus = load_corpus_for(initial, config_);
  EXPECT_EQ(corpus.text_format, checkpoint_.text_format);
  config_.model.block_size = 8, config_.training.batch_size = 2, config_.training.precision.use_amp = false;
  EXPECT_EQ(State(config_, corpus, at::kCPU, device::Precision{}).capture().text_format, checkpoint_.text_format);
}

TEST_F(InitialWeightsTest, AModelThatIsNotHereIsNotDownloaded) {
  config_.training.init_from = "gpt2-xl";
  EXPECT_ERROR(take(), ExitCode::checkpoint, "training.init_from: gpt2-xl: there is no such folder here");
  config_.training.init_from = "scratch";
  EXPECT_ERROR(take(), ExitCode::checkpoint, "'scratch' is no model: leave init_from out");
}

TEST_F(InitialWeightsTest, WithoutATokenizerThereIsNoText) {
  checkpoint_.tokenizer.clear();
  checkpoint_.config.data.bin = "ids.bin";
  checkpoint::save_checkpoint(path_, checkpoint_);
  take();
  InitialWeights initial = initial_weights(checkpoint::load_checkpoint(path_), config_, {});
  config_.data.text = root_.file("other.txt", "some text");
  try {
    (void)load_corpus_for(initial, config_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("has no tokenizer to encode a text with"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace gpt::run
