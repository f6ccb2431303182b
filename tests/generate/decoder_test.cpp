#include "gpt/generate/decoder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "support/device_cases.h"
#include "support/some_adapters.h"
#include "support/tolerance.h"

namespace gpt::generate {
namespace {

constexpr int64_t kVocab = 61;

class DecoderTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    at::set_num_threads(1);  // on a busy machine threads meet more slowly than this model computes
  }

  model::GPT model(int64_t block_size, Position position = Position::rope, int64_t window = 0,
                   int64_t top_blocks = 0) const {
    ModelConfig config;
    if (top_blocks > 0) config.attention = AttentionForm::blocks, config.attention_top_blocks = top_blocks;
    config.n_layer = window > 0 ? 4 : 2, config.n_head = 2, config.n_kv_head = 1, config.n_embd = 16;
    config.attention_window = window, config.window_pattern = "SLS";
    config.block_size = block_size, config.vocab_size = kVocab, config.position = position, config.dropout = 0;
    parameters::NamedTensors weights;
    at::Generator generator = at::detail::createCPUGenerator(2);
    for (const layout::ParameterRow& row : layout::parameter_table(config))
      weights.emplace_back(row.name, 0.3 * at::randn(row.shape, generator));
    return {config, device(), weights};
  }

  // What a pass over the whole context gives for its last token.
  static at::Tensor whole(const model::GPT& model, const std::vector<int32_t>& tokens) {
    const at::Tensor ids = at::tensor(std::vector<int64_t>(tokens.begin(), tokens.end())).unsqueeze(0);
    return model.forward(ids.to(model.device()))[0][-1];
  }

  // Every slot has the logits of its own context. Both sides round.
  static void expect_right(const model::GPT& model, const Decoder& decoder, const Decoder::Next& next) {
    const ModelConfig& config = model.config();
    const int64_t roundings =
        2 * config.n_layer * (5 * config.n_embd + config.head_dim() + config.block_size + config.hidden());
    for (size_t i = 0; i < next.slots.size(); ++i) {
      const at::Tensor expected = whole(model, decoder.tokens(next.slots[i]));
      EXPECT_LE((next.logits[i] - expected).abs().max().item<double>(),
                test::tolerance(at::kFloat, roundings, expected.abs().max().item<double>()))
          << "slot " << next.slots[i];
    }
  }

  // The slots of a step whose logits are right; each goes on with a token.
  static std::vector<int64_t> stepped(const model::GPT& model, Decoder& decoder) {
    const Decoder::Next next = decoder.step();
    expect_right(model, decoder, next);
    for (const int64_t slot : next.slots) decoder.append(slot, 7);
    return next.slots;
  }

  static std::vector<int32_t> some_tokens(int64_t count, int32_t from) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((from + i * i * 7 + i) % kVocab));
    return tokens;
  }
};

TEST_P(DecoderTest, TextsComeAndGoAndEachHasItsOwnLength) {
  const c10::InferenceMode inference;
  for (const Position position : {Position::rope, Position::learned}) {
    const model::GPT model = this->model(16, position);
    Decoder decoder(model, 3, at::kFloat);
    EXPECT_FALSE(decoder.step().logits.defined());
    const int64_t a = *decoder.add(some_tokens(5, 1)), b = *decoder.add(some_tokens(2, 2));
    int32_t token = 3;
    int64_t of_a = 5;  // tokens
    for (int step = 0; step < 40; ++step) {
      if (step == 4) { EXPECT_TRUE(decoder.add(some_tokens(16, 3)).has_value()); }
      if (step == 5) { EXPECT_EQ(decoder.add({1}), std::nullopt) << "all slots are taken"; }
      if (step == 12) {
        decoder.remove(b);
        EXPECT_EQ(decoder.add(some_tokens(23, 4)), b) << "longer than the context";
      }
      const Decoder::Next next = decoder.step();
      expect_right(model, decoder, next);
      for (const int64_t slot : next.slots) {
        decoder.append(slot, token = (token * 5 + 1) % kVocab);
        of_a += slot == a ? 1 : 0;
      }
      EXPECT_EQ(decoder.cropped(a) + std::ssize(decoder.tokens(a)), of_a);
    }
    EXPECT_EQ(decoder.cropped(a) % 9, 0) << "17 tokens become 8";
    EXPECT_GE(decoder.cropped(a), 18);
  }
}

// A prompt is computed in parts beside a text that gets a token in every step, and at once where there is none.
TEST_P(DecoderTest, ALongPromptDoesNotHoldTheOthersUp) {
  const c10::InferenceMode inference;
  constexpr int64_t kLong = 2 * Decoder::kChunk + 10;
  const model::GPT model = this->model(kLong + 8);
  Decoder decoder(model, 3, at::kFloat);
  const int64_t talking = *decoder.add(some_tokens(3, 1));
  expect_right(model, decoder, decoder.step());
  decoder.append(talking, 5);
  const int64_t prompt = *decoder.add(some_tokens(kLong, 2)), later = *decoder.add(some_tokens(4, 3));
  EXPECT_FALSE(decoder.computes_single_tokens());
  const std::vector<std::vector<int64_t>> expected{{talking}, {talking}, {talking, prompt, later}};
  for (const std::vector<int64_t>& slots : expected) { EXPECT_EQ(stepped(model, decoder), slots); }
  EXPECT_TRUE(decoder.computes_single_tokens());
  for (const int64_t slot : {talking, later}) decoder.remove(slot);
  decoder.remove(prompt);
  EXPECT_EQ(*decoder.add(some_tokens(kLong, 5)), 0);
  EXPECT_EQ(decoder.step().slots, std::vector<int64_t>{0});
}

// A long prompt at once and in parts, texts that begin alike, and one that outgrows the context.
TEST_P(DecoderTest, WindowedLayersSeeInACacheWhatTheySeeWithoutOne) {
  const c10::InferenceMode inference;
  constexpr int64_t kLong = 2 * Decoder::kChunk + 10;
  for (const int64_t window : {1, 7, 200}) {
    SCOPED_TRACE(window);
    const model::GPT model = this->model(kLong + 2, Position::rope, window);
    Decoder decoder(model, 3, at::kFloat);
    const auto step = [&] { return stepped(model, decoder); };
    const int64_t first = *decoder.add(some_tokens(kLong, 2));
    EXPECT_EQ(step(), std::vector<int64_t>{first});
    const int64_t beside = *decoder.add(some_tokens(kLong - 3, 5)), alike = *decoder.add(some_tokens(kLong - 9, 2));
    while (step().size() < 3) {}
    for (int i = 0; i < 5; ++i) EXPECT_EQ(step(), (std::vector<int64_t>{first, beside, alike}));
    EXPECT_GT(decoder.cropped(first), 0);
  }
}

// The same where queries choose blocks, whose means a text that begins alike takes over.
TEST_P(DecoderTest, QueriesChooseInACacheTheBlocksThatTheyChooseWithoutOne) {
  if (device().is_cuda()) GTEST_SKIP() << "a CPU alone computes them";
  const c10::InferenceMode inference;
  constexpr int64_t kLong = 2 * Decoder::kChunk + 10;
  for (const Position position : {Position::rope, Position::learned}) {
    const model::GPT model = this->model(kLong + 2, position, /*window=*/0, /*top_blocks=*/2);
    Decoder decoder(model, 3, at::kFloat);
    const auto step = [&] { return stepped(model, decoder); };
    const int64_t first = *decoder.add(some_tokens(kLong, 2));
    EXPECT_EQ(step(), std::vector<int64_t>{first});
    (void)*decoder.add(some_tokens(kLong - 3, 5));
    (void)*decoder.add(some_tokens(kLong - 9, 2));
    while (step().size() < 3) {}
    for (int i = 0; i < 5; ++i) EXPECT_EQ(step().size(), 3);
    EXPECT_GT(decoder.cropped(first), 0);
    for (int i = 0; i < 70; ++i) (void)step();  // which completes a block
  }
}

// They would take three steps, as a long prompt does.
TEST_P(DecoderTest, TextsThatBeginAlikeComputeTheirBeginningOnce) {
  const c10::InferenceMode inference;
  constexpr int64_t kLong = 2 * Decoder::kChunk + 10;
  const model::GPT model = this->model(kLong + 8);
  Decoder decoder(model, 3, at::kFloat);
  std::vector<int32_t> prompt = some_tokens(kLong, 2);
  const int64_t first = *decoder.add(prompt);
  expect_right(model, decoder, decoder.step());
  decoder.append(first, 5);
  const int64_t same = *decoder.add(prompt);
  for (int64_t i = kLong - 3; i < kLong; ++i) prompt[i] = (prompt[i] + 1) % kVocab;
  const int64_t nearly = *decoder.add(prompt);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(stepped(model, decoder), (std::vector<int64_t>{first, same, nearly}));
  }
}

TEST_P(DecoderTest, ACopyGoesOnByItself) {
  const c10::InferenceMode inference;
  const model::GPT model = this->model(16);
  Decoder decoder(model, 2, at::kFloat);
  const int64_t first = *decoder.add(some_tokens(6, 1));
  expect_right(model, decoder, decoder.step());
  const int64_t second = *decoder.copy(first);
  EXPECT_EQ(decoder.copy(first), std::nullopt);
  for (int32_t step = 0; step < 18; ++step) {
    decoder.append(first, step), decoder.append(second, kVocab - 1 - step);
    const Decoder::Next next = decoder.step();
    EXPECT_EQ(next.slots.size(), 2);
    expect_right(model, decoder, next);
  }
}

TEST_P(DecoderTest, ReplacesATextAndComputesWhatDiffers) {
  const c10::InferenceMode inference;
  for (const int64_t top_blocks : {0, 1}) {
    const model::GPT gpt = model(32, Position::rope, 0, top_blocks);
    Decoder decoder(gpt, 1, at::kFloat);
    const int64_t slot = *decoder.add({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
    expect_right(gpt, decoder, decoder.step());
    // A longer text, one that differs early, a beginning of it, the same one again, and an entirely different one.
    for (const std::vector<int32_t>& tokens : std::vector<std::vector<int32_t>>{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
                                                                                {1, 2, 30, 4, 5, 6},
                                                                                {1, 2, 30},
                                                                                {1, 2, 30},
                                                                                {9, 8, 7, 6, 5, 4, 3, 2, 1}}) {
      decoder.replace(slot, tokens);
      EXPECT_EQ(decoder.tokens(slot), tokens);
      const Decoder::Next next = decoder.step();
      ASSERT_EQ(next.slots.size(), 1);
      expect_right(gpt, decoder, next);
      decoder.append(slot, 12);
      expect_right(gpt, decoder, decoder.step());
    }
  }
}

// Texts with adapters of other ranks and products, and one without, that come and go: each has the logits of the model that its adapter is
// merged into. What texts of two adapters have in common is computed for either.
TEST_P(DecoderTest, TextsOfSeveralAdaptersAreThoseOfTheMergedModels) {
  const c10::InferenceMode inference;
  using enum layout::ParameterRole;
  model::GPT gpt = model(64);
  const ModelConfig& config = gpt.config();
  const std::vector<std::vector<ops::AdapterFactors>> adapters{
      test::some_adapter(config, {attention_in, attention_out, mlp_gate, mlp_in, mlp_out}, 2, 0.2, 3),
      test::some_adapter(config, {attention_in, mlp_out}, 5, 0.2, 4)};
  const parameters::NamedTensors weights = model(64).parameters().values();
  std::vector<model::GPT> merged;
  merged.push_back(model(64));
  for (const auto& adapter : adapters)
    merged.emplace_back(config, device(), test::with_adapter(config, weights, adapter));

  std::vector<std::vector<ops::AdapterFactors>> on_device = adapters;
  for (auto& adapter : on_device)
    for (auto& [site, outputs, a, b] : adapter) a = a.to(device()), b = b.to(device());
  const auto row_adapters = std::make_shared<const ops::RowAdapters>(gpt.operators(), on_device, at::kFloat);
  gpt.set_operators(row_adapters);
  Decoder decoder(gpt, 5, at::kFloat, std::nullopt, row_adapters);
  std::map<int64_t, int64_t> adapter_of;  // by slot
  const auto add = [&](int64_t tokens, int32_t from, int64_t adapter) {
    adapter_of[*decoder.add(some_tokens(tokens, from), adapter)] = adapter;
  };
  for (const int64_t adapter : {1, 0, -1, 1}) add(40, 1, adapter);  // all of the same prompt
  int32_t token = 3;
  for (int step = 0; step < 30; ++step) {
    if (step == 6) add(20, 1, 0);
    if (step == 12) decoder.remove(1), add(50, 9, -1);
    const Decoder::Next next = decoder.step();
    for (size_t i = 0; i < next.slots.size(); ++i) {
      const model::GPT& own = merged[adapter_of.at(next.slots[i]) + 1];
      Decoder::Next one{{next.slots[i]}, next.logits.narrow(0, static_cast<int64_t>(i), 1)};
      expect_right(own, decoder, one);
      decoder.append(next.slots[i], token++ % kVocab);
    }
  }
}

INSTANTIATE_ON_DEVICES(DecoderTest);

}  // namespace
}  // namespace gpt::generate
