#include "gpt/generate/generator.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <set>

#include "generate/tiny_text_model.h"
#include "gpt/core/error.h"
#include "gpt/core/utf8.h"
#include "gpt/device/precision.h"
#include "gpt/device/random_state.h"
#include "gpt/generate/sampler.h"
#include "gpt/generate/text_stream.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/device_cases.h"

namespace gpt::generate {
namespace {

using namespace test;

struct Uncached {
  std::string text;
  int64_t cropped = 0;
};

// The same text the slow way: every token from a whole forward pass over a context that never exceeds block_size.
Uncached uncached(model::GPT& model, const tokenizer::Tokenizer& tokenizer, const std::string& prompt,
                  const SamplingConfig& config) {
  const c10::InferenceMode inference;
  model.train(false);
  at::Generator generator = at::globalContext().defaultGenerator(model.device()).clone();
  generator.set_current_seed(config.seed);
  std::vector<int32_t> context = tokenizer.encode(prompt), drawn;
  Uncached result;
  for (int64_t i = 0; i < config.max_new_tokens; ++i) {
    while (static_cast<int64_t>(context.size()) > kBlockSize) {
      result.cropped += context.size() - kBlockSize / 2;
      context = std::vector<int32_t>(context.end() - kBlockSize / 2, context.end());
    }
    const at::Tensor tokens = at::tensor(context, at::kLong).unsqueeze(0).to(model.device());
    at::Tensor logits = model.forward(tokens).select(1, -1);
    if (config.repetition_penalty != 1) logits = penalize_repetition(logits, tokens, config.repetition_penalty);
    drawn.push_back(static_cast<int32_t>(sample(logits, config, generator).item<int64_t>()));
    context.push_back(drawn.back());
  }
  result.text = tokenizer.decode(drawn);
  return result;
}

class GeneratorTest : public DeviceTest {};

TEST_P(GeneratorTest, CacheChangesNothing) {
  const auto tokenizer = characters();
  for (const Position position : {Position::rope, Position::learned}) {
    const auto model = tiny_model(device(), tokenizer->vocab_size(), position);
    for (const double temperature : {0.0, 1.5}) {
      for (const size_t prompt_length : {1, 5, 15, 16, 17, 50}) {
        const std::string prompt = (kCharacters + kCharacters).substr(1, prompt_length);
        const SamplingConfig config{.temperature = temperature, .max_new_tokens = 60};
        const Uncached expected = uncached(*model, *tokenizer, prompt, config);
        const GenerationResult result = generate(*model, *tokenizer, prompt, config, at::kFloat);
        EXPECT_EQ(result.text, expected.text) << "prompt of " << prompt_length;
        EXPECT_EQ(result.cropped_tokens, expected.cropped) << "prompt of " << prompt_length;
        EXPECT_EQ(result.prompt_tokens, prompt_length);
        EXPECT_EQ(result.new_tokens, 60);
        EXPECT_EQ(result.stop_reason, "length");
      }
    }
  }
}

// Over the prompt, what was drawn and, once the context is cropped, what is left of both.
TEST_P(GeneratorTest, PenalizesWhatTheContextHolds) {
  const auto tokenizer = characters();
  const auto model = tiny_model(device(), tokenizer->vocab_size());
  for (const double temperature : {0.0, 1.5}) {
    SamplingConfig config{.temperature = temperature, .repetition_penalty = 2, .max_new_tokens = 40};
    const Uncached expected = uncached(*model, *tokenizer, "abcdefg", config);
    EXPECT_EQ(generate(*model, *tokenizer, "abcdefg", config, at::kFloat).text, expected.text);
    config.repetition_penalty = 1;
    EXPECT_NE(generate(*model, *tokenizer, "abcdefg", config, at::kFloat).text, expected.text);
  }
}

TEST_P(GeneratorTest, CountsWhatFellOutOfTheContext) {
  const auto tokenizer = characters();
  const auto model = tiny_model(device(), tokenizer->vocab_size());
  const auto cropped = [&](size_t prompt_length, int64_t new_tokens) {
    const SamplingConfig config{.max_new_tokens = new_tokens};
    return generate(*model, *tokenizer, std::string(prompt_length, 'a'), config, at::kFloat).cropped_tokens;
  };
  EXPECT_EQ(cropped(16, 1), 0);  // a full context still gives one token
  EXPECT_EQ(cropped(16, 2), 9);  // 17 become 8
  EXPECT_EQ(cropped(17, 1), 9);
  EXPECT_EQ(cropped(40, 1), 32);
  EXPECT_EQ(cropped(1, 16), 0);
  EXPECT_EQ(cropped(1, 17), 9);
}

TEST_P(GeneratorTest, SameSeedSameText) {
  const auto tokenizer = characters();
  const auto model = tiny_model(device(), tokenizer->vocab_size());
  const auto text = [&](uint64_t seed) {
    return generate(*model, *tokenizer, "a", {.temperature = 2, .max_new_tokens = 40, .seed = seed}, at::kFloat).text;
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

TEST_P(GeneratorTest, LeavesTrainingAlone) {
  const auto tokenizer = characters();
  const auto model = tiny_model(device(), tokenizer->vocab_size());
  const at::Tensor batch = at::randint(tokenizer->vocab_size(), {2, kBlockSize + 1}, at::kLong).to(device());
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    model->train(true);
    const at::Tensor before = device::random_state(device());
    generate(*model, *tokenizer, "abc", {.max_new_tokens = 30}, type);
    EXPECT_TRUE(device::random_state(device()).equal(before));
    EXPECT_TRUE(model->training());
    EXPECT_FALSE(c10::InferenceMode::is_enabled());
    // No tensor of the inference may be left where a backward pass would meet it.
    model->loss(batch.narrow(1, 0, kBlockSize), batch.narrow(1, 1, kBlockSize)).backward();
    EXPECT_NO_THROW((void)model->parameters().flat_gradients());  // every parameter has one
    model->parameters().clear_gradients();
  }
  EXPECT_THROW(generate(*model, *tokenizer, "A", {}, at::kFloat), Error);  // not in the vocabulary
  EXPECT_TRUE(model->training());
  model->train(false);
  generate(*model, *tokenizer, "abc", {.max_new_tokens = 1}, at::kFloat);
  EXPECT_FALSE(model->training());
}

TEST_P(GeneratorTest, StreamsWholeCharacters) {
  const auto tokenizer = tokenizer::make_tokenizer("byte", "");
  const auto model = tiny_model(device(), 256);
  std::string streamed;
  int multibyte = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SamplingConfig config{.temperature = 4, .max_new_tokens = 60, .seed = seed};
    streamed.clear();
    const GenerationResult result = generate(*model, *tokenizer, "é", config, at::kFloat, [&](std::string_view piece) {
      EXPECT_FALSE(piece.empty());
      EXPECT_TRUE(utf8::is_valid(piece)) << piece;
      streamed += piece;
      return true;
    });
    EXPECT_EQ(streamed, result.text);
    multibyte += result.text.find("\xC3") != std::string::npos || result.text.find("\xEF\xBF\xBD") != std::string::npos;
  }
  EXPECT_GT(multibyte, 0) << "no byte above 0x7f was drawn: this test saw nothing";
}

// An alphabet without every third letter: gaps in the numbering, as tiktoken's vocabularies have them.
class WithGaps : public tokenizer::Tokenizer {
 public:
  std::string name() const override { return "test"; }
  int64_t vocab_size() const override { return 26; }
  using tokenizer::Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (const char c : text) ids.push_back(c - 'a');
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id >= vocab_size()) throw Error(ExitCode::data, "outside the vocabulary");
      if (id % 3 != 0) text += static_cast<char>('a' + id);
    }
    return text;
  }
  size_t last_cut(std::string_view) const override { return 0; }
  std::string to_json() const override { return ""; }
};

// The model has many more ids than the tokenizer, and prefers them: `--model.vocab_size` may be any larger number.
TEST_P(GeneratorTest, DrawsNoIdWithoutAText) {
  const WithGaps tokenizer;
  const auto model = tiny_model(device(), 500);
  for (SamplingConfig config : {SamplingConfig{.temperature = 0},
                                {.temperature = 3},
                                {.temperature = 3, .top_k = 20},
                                {.temperature = 3, .top_k = 400},
                                {.temperature = 3, .top_p = 0.99},
                                {.temperature = 3, .min_p = 0.001},
                                {.temperature = 3, .repetition_penalty = 2}}) {
    config.max_new_tokens = 100;
    const GenerationResult result = generate(*model, tokenizer, "b", config, at::kFloat);
    EXPECT_EQ(result.text.size(), 100) << result.text;  // every token was a letter
  }
}

TEST(GenerationType, IsNotSlowerThanTheWeights) {
  device::Precision precision;
  EXPECT_EQ(generation_type(precision, at::kCPU), at::kFloat);
  precision.dtype = Dtype::bfloat16;  // autocast
  EXPECT_EQ(generation_type(precision, at::kCPU), at::kFloat);
  EXPECT_EQ(generation_type(precision, at::Device(at::kCUDA, 0)), at::kBFloat16);
  precision.end_to_end = true;
  EXPECT_EQ(generation_type(precision, at::kCPU), at::kBFloat16);
}

// Together with others a text is what it is alone: also where some end early, and where the context is longer than the model's.
TEST_P(GeneratorTest, TextsThatAreGeneratedTogetherAreThoseOfTheirSeeds) {
  const auto tokenizer = characters();
  const auto model = tiny_model(device(), tokenizer->vocab_size());
  SamplingConfig config{.temperature = 1.5, .max_new_tokens = 60, .seed = 7};
  const std::string usual = generate(*model, *tokenizer, "abc", config, at::kFloat).text;
  for (const bool has_stop : {false, true}) {
    if (has_stop) config.stop = {usual.substr(10, 2)};
    std::string streamed;
    const auto together =
        generate_several(*model, *tokenizer, "abc", config, 5, at::kFloat, [&](std::string_view piece) {
          streamed += piece;
          return true;
        });
    ASSERT_EQ(together.size(), 5);
    EXPECT_EQ(streamed, together[0].text);
    for (uint64_t i = 0; i < together.size(); ++i) {
      SamplingConfig alone = config;
      alone.seed = config.seed + i;
      const GenerationResult expected = generate(*model, *tokenizer, "abc", alone, at::kFloat);
      EXPECT_EQ(together[i].text, expected.text) << i;
      EXPECT_EQ(together[i].new_tokens, expected.new_tokens) << i;
      EXPECT_EQ(together[i].stop_reason, expected.stop_reason) << i;
      EXPECT_EQ(together[i].prompt_tokens, 3);
    }
  }
}

TEST_P(GeneratorTest, WhereTheFirstTextIsInterruptedAllAre) {
  const auto tokenizer = characters();
  const auto model = tiny_model(device(), tokenizer->vocab_size());
  const auto results = generate_several(*model, *tokenizer, "a", {.max_new_tokens = 40}, 3, at::kFloat,
                                        [](std::string_view) { return false; });
  for (const GenerationResult& result : results) EXPECT_EQ(result.stop_reason, "interrupted");
  EXPECT_LT(results[2].new_tokens, 40);
}

TEST_P(GeneratorTest, NoMoreTextsAtOnceThanAreWanted) {
  const auto model = tiny_model(device(), 20);
  EXPECT_EQ(texts_at_once(*model, 1), 1);
  EXPECT_EQ(texts_at_once(*model, 3), 3);
  EXPECT_EQ(texts_at_once(*model, 1000), 16);
}

// The clock of this machine decides how many threads compute a token, and the text is the same whatever they are.
TEST_P(GeneratorTest, TheChoiceOfThreadsChangesNoText) {
  const auto tokenizer = characters();
  const auto model = tiny_model(device(), tokenizer->vocab_size());
  const SamplingConfig config{.temperature = 1.5, .max_new_tokens = 60};
  const std::string expected = generate(*model, *tokenizer, "abc", config, at::kFloat).text;
  ThreadChoice choice(2);
  std::set<int> threads;
  const auto watch = [&](std::string_view) { return threads.insert(at::get_num_threads()), true; };
  EXPECT_EQ(generate(*model, *tokenizer, "abc", config, at::kFloat, watch, &choice).text, expected);
  EXPECT_EQ(threads, (std::set<int>{1, 2}));
  at::set_num_threads(1);
}

TEST_P(GeneratorTest, EndsBeforeAStopTextThatSpansTokens) {
  const auto tokenizer = characters();
  const auto model = tiny_model(device(), tokenizer->vocab_size());
  SamplingConfig config{.temperature = 2, .max_new_tokens = 40};
  const std::string whole = generate(*model, *tokenizer, "a", config, at::kFloat).text;
  const std::string stop = whole.substr(20, 4);
  const size_t at = whole.find(stop);
  config.stop = {"never there", stop};
  std::string streamed;
  const GenerationResult result = generate(*model, *tokenizer, "a", config, at::kFloat, [&](std::string_view piece) {
    streamed += piece;
    return true;
  });
  EXPECT_EQ(result.text, whole.substr(0, at));
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.stop_reason, "stop text");
  EXPECT_EQ(result.new_tokens, at + 4);
}

// Characters and one special token, as vocabularies with an end of text have it.
class WithEndOfText : public tokenizer::Tokenizer {
 public:
  explicit WithEndOfText(int32_t id) : end_of_text_{{"<|endoftext|>", id}} {}
  std::string name() const override { return "test"; }
  int64_t vocab_size() const override { return characters_->vocab_size(); }
  std::span<const tokenizer::SpecialToken> special_tokens() const override { return end_of_text_; }
  using tokenizer::Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override { characters_->encode(text, ids); }
  size_t last_cut(std::string_view text) const override { return characters_->last_cut(text); }
  std::string decode(std::span<const int32_t> ids) const override { return characters_->decode(ids); }
  std::string to_json() const override { return characters_->to_json(); }

 private:
  std::unique_ptr<tokenizer::Tokenizer> characters_ = characters();
  std::vector<tokenizer::SpecialToken> end_of_text_;
};

TEST_P(GeneratorTest, EndsAtEndOfText) {
  const auto plain = characters();
  const auto model = tiny_model(device(), plain->vocab_size());
  const SamplingConfig config{.temperature = 2, .max_new_tokens = 40};
  const std::string whole = generate(*model, *plain, "a", config, at::kFloat).text;
  const char last = whole[20];
  const size_t at = whole.find(last);
  const WithEndOfText tokenizer(plain->encode(std::string(1, last))[0]);
  const GenerationResult result = generate(*model, tokenizer, "a", config, at::kFloat);
  EXPECT_EQ(result.text, whole.substr(0, at));
  EXPECT_EQ(result.stop_reason, "end of text");
  EXPECT_EQ(result.new_tokens, at + 1);
}

TEST_P(GeneratorTest, EndsAtEveryTokenOfTheModels) {
  const auto plain = characters();
  const auto model = tiny_model(device(), plain->vocab_size());
  SamplingConfig config{.temperature = 2, .max_new_tokens = 40};
  const std::string whole = generate(*model, *plain, "a", config, at::kFloat).text;
  const char first = whole[10], second = whole[20];
  config.ends = {plain->encode(std::string(1, first))[0], plain->encode(std::string(1, second))[0]};
  const WithEndOfText named(plain->encode(std::string(1, whole[0]))[0]);  // by its name alone it would be one
  const GenerationResult result = generate(*model, named, "a", config, at::kFloat);
  EXPECT_EQ(result.text, whole.substr(0, whole.find_first_of(std::string{first, second})));
  EXPECT_EQ(result.stop_reason, "end of text");
}

TEST_P(GeneratorTest, EmptyPromptHasAStart) {
  const auto plain = characters();
  const auto model = tiny_model(device(), plain->vocab_size());
  const SamplingConfig config{.temperature = 0, .max_new_tokens = 10};
  const auto text = [&](const tokenizer::Tokenizer& tokenizer, const std::string& prompt) {
    return generate(*model, tokenizer, prompt, config, at::kFloat).text;
  };
  EXPECT_EQ(text(*plain, ""), text(*plain, "\n"));
  const auto without_newline = tokenizer::make_tokenizer("char", kCharacters.substr(1) + "#");
  EXPECT_EQ(text(*without_newline, ""), text(*without_newline, " "));  // the first of its vocabulary
  EXPECT_EQ(text(WithEndOfText(plain->encode("q")[0]), ""), text(*plain, "q").substr(0, text(*plain, "q").find('q')));
}

TEST_P(GeneratorTest, EmitStopsIt) {
  const auto tokenizer = characters();
  const auto model = tiny_model(device(), tokenizer->vocab_size());
  int pieces = 0;
  const GenerationResult result = generate(*model, *tokenizer, "a", {.max_new_tokens = 40}, at::kFloat,
                                           [&](std::string_view) { return ++pieces < 3; });
  EXPECT_EQ(result.stop_reason, "interrupted");
  EXPECT_EQ(result.new_tokens, 3);
  EXPECT_EQ(result.text.size(), 3);
}

TEST_P(GeneratorTest, RefusesLogitsThatAreNotFinite) {
  const auto tokenizer = characters();
  const auto model = tiny_model(device(), tokenizer->vocab_size());
  model->parameters().flat_values().detach().fill_(NAN);
  try {
    generate(*model, *tokenizer, "a", {}, at::kFloat);
    FAIL() << "text was drawn from NaN";
  } catch (const Error& e) { EXPECT_EQ(e.code(), ExitCode::numerics); }
}

TEST_P(GeneratorTest, MayWriteNothing) {
  const auto tokenizer = characters();
  const auto model = tiny_model(device(), tokenizer->vocab_size());
  const GenerationResult result = generate(*model, *tokenizer, "a", {.max_new_tokens = 0}, at::kFloat);
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.new_tokens, 0);
}

INSTANTIATE_ON_DEVICES(GeneratorTest);

TEST(SamplingConfig, ValuesOutOfRangeAreRefused) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::vector<SamplingConfig> wrong = {
      {.temperature = -0.1},
      {.temperature = NAN},
      {.temperature = kInf},
      {.top_k = -1},
      {.top_p = 0},
      {.top_p = 1.01},
      {.top_p = NAN},
      {.max_new_tokens = -1},
      {.stop = {""}},
      {.stop = {"\xFF"}},
      {.min_p = -0.1},
      {.min_p = 1.1},
      {.min_p = NAN},
      {.repetition_penalty = 0},
      {.repetition_penalty = -1},
      {.repetition_penalty = 101},
      {.repetition_penalty = NAN},
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    try {
      validate(wrong[i]);
      ADD_FAILURE() << "accepted: case " << i;
    } catch (const Error& e) { EXPECT_EQ(e.code(), ExitCode::config) << e.what(); }
  }
  EXPECT_NO_THROW(validate({.temperature = 0, .top_k = 0, .top_p = 1, .max_new_tokens = 0, .stop = {"\n"}}));
  EXPECT_NO_THROW(validate({.min_p = 1, .repetition_penalty = 0.01}));
  EXPECT_NO_THROW(validate({.min_p = 0, .repetition_penalty = 100}));
}

}  // namespace
}  // namespace gpt::generate
