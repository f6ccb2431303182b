#include "gpt/model/gpt.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/device/precision.h"
#include "gpt/model/compile.h"
#include "gpt/ops/linear.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/ops/part.h"
#include "support/cached_batch.h"
#include "support/device_cases.h"
#include "support/dropout_at.h"
#include "support/fixture.h"
#include "support/restore_context.h"
#include "support/tolerance.h"

namespace gpt::model {
namespace {

constexpr int64_t kVocab = 97;  // padded to 128

ModelConfig tiny_config() {
  ModelConfig config;
  config.n_layer = 2;
  config.n_head = 4;
  config.n_kv_head = 2;
  config.n_embd = 32;
  config.block_size = 16;
  config.vocab_size = kVocab;
  config.dropout = 0.0;
  return config;
}

at::Tensor random_ids(int64_t batch, int64_t length, uint64_t seed) {
  return at::randint(kVocab, {batch, length}, at::detail::createCPUGenerator(seed), at::dtype(at::kLong));
}

at::Tensor parameter(const GPT& model, const std::string& name) {
  for (const auto& [candidate, tensor] : model.parameters().values()) {
    if (candidate == name) return tensor;
  }
  throw std::out_of_range(name);
}

at::Tensor default_random_state() { return at::detail::getDefaultCPUGenerator().get_state(); }
void seed_default_generator(uint64_t seed) {
  at::Generator(at::detail::getDefaultCPUGenerator()).set_current_seed(seed);
}

std::vector<at::Tensor> gradients(const GPT& model) {
  std::vector<at::Tensor> result;
  (void)model.parameters().flat_gradients();  // throws where one is missing
  for (const auto& [name, gradient] : model.parameters().gradients()) result.push_back(gradient.clone());
  model.parameters().clear_gradients();
  return result;
}

class GPTOnDevice : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    device::apply_precision({}, /*deterministic=*/false);  // sums are float32 in cuBLAS too
  }

  RestoreContext restore_;
};

TEST(GPT, VocabularyPaddingTakesNoPart) {
  for (const bool tied : {true, false}) {
    for (const double smoothing : {0.0, 0.1}) {
      ModelConfig config = tiny_config();
      config.tie_weights = tied;
      const GPT model(config, at::kCPU, 1);
      const parameters::Parameter head = tied ? model.parameters().weight(layout::ParameterRole::token_embedding, -1)
                                              : model.parameters().weight(layout::ParameterRole::head, config.n_layer);
      head.value().detach().narrow(0, kVocab, 128 - kVocab).fill_(50.0);  // would win every softmax it were part of
      const at::Tensor ids = random_ids(2, 16, 1), targets = random_ids(2, 16, 2);
      const at::Tensor logits = model.forward(ids), loss = model.loss(ids, targets, {.label_smoothing = smoothing});
      ASSERT_EQ(logits.sizes(), (std::vector<int64_t>{2, 16, kVocab}));
      const at::Tensor expected = at::cross_entropy_loss(logits.to(at::kDouble).flatten(0, 1), targets.flatten(), {},
                                                         at::Reduction::Mean, -100, smoothing);
      EXPECT_NEAR(loss.item<double>(), expected.item<double>(),
                  test::tolerance(at::kFloat, 2 * kVocab, expected.item<double>()));
      loss.backward();
      const at::Tensor& gradient = head.gradient();
      EXPECT_TRUE(gradient.narrow(0, kVocab, 128 - kVocab).eq(0).all().item<bool>());
      EXPECT_TRUE(gradient.narrow(0, 0, kVocab).ne(0).any(1).all().item<bool>());
    }
  }
}

// Without a master it computes with the same weights, and what it keeps of a gradient is that of float32, rounded.
TEST_P(GPTOnDevice, KeepsWeightsAndGradientsOfSixteenBits) {
  for (const bool tied : {true, false}) {
    for (const ops::SharedOperators& operators : {ops::fused_operators(), ops::aten_operators()}) {
      ModelConfig config = tiny_config();
      config.tie_weights = tied;
      config.position = Position::learned;
      GPT wide(config, device(), 1, {.compute = at::kBFloat16}),
          narrow(config, device(), 1, {.compute = at::kBFloat16, .has_master = false, .gradient = at::kBFloat16});
      const at::Tensor ids = random_ids(2, 16, 1).to(device()), targets = random_ids(2, 16, 2).to(device());
      std::vector<double> losses;
      for (GPT* model : {&wide, &narrow}) {
        model->set_operators(operators);
        const at::Tensor loss = model->loss(ids, targets);
        losses.push_back(loss.item<double>());
        loss.backward();
      }
      EXPECT_EQ(losses[0], losses[1]);
      const std::vector<at::Tensor> expected = gradients(wide), found = gradients(narrow);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(found[i].scalar_type(), at::kBFloat16);
        // A contribution of the head, one of the embedding, and their sum.
        const double largest = expected[i].abs().max().item<double>();
        EXPECT_LE((found[i].to(at::kFloat) - expected[i]).abs().max().item<double>(),
                  test::tolerance(at::kBFloat16, 3, largest))
            << wide.parameters().rows()[i].name;
        EXPECT_GT(largest, 0);
      }
    }
  }
}

TEST(GPT, VocabularyMultipleChangesNoWeight) {
  ModelConfig exact = tiny_config();
  exact.vocab_multiple = 1;
  const GPT padded(tiny_config(), at::kCPU, 1), unpadded(exact, at::kCPU, 1);
  for (const auto& [name, tensor] : unpadded.parameters().values()) {
    EXPECT_TRUE(tensor.equal(parameter(padded, name).narrow(0, 0, tensor.size(0)))) << name;
  }
}

TEST(GPT, DrawsItsWeightsByGpt2sRuleFromItsOwnGenerator) {
  ModelConfig config = tiny_config();
  config.n_embd = 128;
  config.n_hidden = 512;
  config.norm = Norm::layernorm;
  config.bias = true;
  for (const Mlp mlp : {Mlp::gelu, Mlp::relu2, Mlp::swiglu}) {
    config.mlp = mlp;
    const at::Tensor before = default_random_state();
    const GPT model(config, at::kCPU, 7), again(config, at::kCPU, 7), other(config, at::kCPU, 8);
    EXPECT_TRUE(default_random_state().equal(before));
    for (const auto& [name, tensor] : model.parameters().values()) {
      EXPECT_TRUE(tensor.equal(parameter(again, name))) << name;
      if (tensor.dim() == 1) {
        EXPECT_TRUE(tensor.eq(name.ends_with("weight") ? 1 : 0).all().item<bool>()) << name;
        continue;
      }
      EXPECT_FALSE(tensor.equal(parameter(other, name))) << name;
      const at::Tensor drawn = name.ends_with("wte.weight") ? tensor.narrow(0, 0, kVocab) : tensor;
      const bool residual = name.ends_with("attn.c_proj.weight") || name.ends_with("mlp.c_proj.weight") ||
                            name.ends_with("mlp.w2.weight");
      const double std = residual ? 0.02 / std::sqrt(2.0 * 2) : 0.02;
      const double n = static_cast<double>(drawn.numel());  // five standard errors of the estimates
      EXPECT_NEAR(drawn.std().item<double>(), std, 5 * std / std::sqrt(2 * n)) << name;
      EXPECT_NEAR(drawn.mean().item<double>(), 0.0, 5 * std / std::sqrt(n)) << name;
    }
    EXPECT_TRUE(parameter(model, "transformer.wte.weight").narrow(0, kVocab, 128 - kVocab).eq(0).all().item<bool>());
  }
}

TEST(GPT, DropoutOnlyWhenTraining) {
  ModelConfig config = tiny_config();
  config.dropout = 0.3;
  for (const Mlp mlp : {Mlp::gelu, Mlp::relu2, Mlp::swiglu, Mlp::geglu}) {
    config.mlp = mlp;
    GPT model(config, at::kCPU, 1);
    const at::Tensor ids = random_ids(2, 16, 1);
    EXPECT_TRUE(model.forward(ids).equal(model.forward(ids)));
    const at::Tensor whole = model.forward(ids);
    model.train(true);
    EXPECT_FALSE(model.forward(ids).equal(whole));
    EXPECT_TRUE(model.forward(ids).equal(model.forward(ids))) << "without a place the masks are always the same";
    model.train(false);
    EXPECT_TRUE(model.forward(ids).equal(whole));
  }
}

// In both architectures, with our operators and with ATen's.
TEST(GPT, GradientCheckpointingGivesTheSameBits) {
  using enum GradientCheckpointing;
  (void)select_operators({}, at::kCPU);  // allows LibTorch every kernel
  constexpr std::array kLevels{none, activation, norm, selective, block};
  ModelConfig gpt2 = tiny_config();
  gpt2.norm = Norm::layernorm, gpt2.mlp = Mlp::gelu, gpt2.position = Position::learned, gpt2.bias = true;
  ModelConfig windowed = tiny_config();
  windowed.attention_window = 5, windowed.window_pattern = "S";
  for (ModelConfig config : {tiny_config(), gpt2, windowed}) {
    for (const double dropout : {0.0, 0.2}) {
      for (const bool ours : {true, false}) {
        config.dropout = dropout;
        GPT model(config, at::kCPU, 1);
        model.set_operators(ours ? ops::fused_operators() : ops::aten_operators());
        model.train(true);
        const at::Tensor ids = random_ids(3, 16, 1), targets = random_ids(3, 16, 2);
        std::array<at::Tensor, kLevels.size()> loss, state;
        std::array<std::vector<at::Tensor>, kLevels.size()> gradient;
        for (size_t level = 0; level < kLevels.size(); ++level) {
          model.set_gradient_checkpointing(kLevels[level]);
          seed_default_generator(5);
          for (int micro_step = 0; micro_step < 2; ++micro_step) {  // accumulated
            const at::Tensor place = test::dropout_at(at::kCPU, 0, 7, 3 * micro_step).place;
            loss[level] = model.loss(ids, targets, {.dropout_place = place});
            // Nothing that is computed again asks the generator, unless it is LibTorch's.
            if (ours) seed_default_generator(6);
            loss[level].backward();
          }
          gradient[level] = gradients(model);
          state[level] = default_random_state();
          EXPECT_TRUE(loss[level].equal(loss[0])) << level;
          EXPECT_TRUE(state[level].equal(state[0])) << level;
          for (size_t i = 0; i < gradient[0].size(); ++i) {
            EXPECT_TRUE(gradient[level][i].equal(gradient[0][i]))
                << model.parameters().rows()[i].name << ", level " << level << ", dropout " << dropout << ", ours "
                << ours;
          }
        }
      }
    }
  }
}

// At every level of gradient checkpointing.
TEST(GPT, ACallMayNarrowTheWindowsOfWindowedLayersAlone) {
  ModelConfig wide = tiny_config(), narrow = wide, whole = wide;
  wide.attention_window = 12, narrow.attention_window = 3, whole.attention_window = whole.block_size;
  for (ModelConfig* config : {&wide, &narrow, &whole}) config->n_layer = 3, config->window_pattern = "SL";
  GPT model(wide, at::kCPU, 1);
  const GPT other(narrow, at::kCPU, 1);
  const at::Tensor ids = random_ids(2, 16, 1), targets = random_ids(2, 16, 2);
  const at::Tensor expected = other.loss(ids, targets);
  expected.backward();
  const std::vector<at::Tensor> gradient = gradients(other);
  for (const auto level :
       {GradientCheckpointing::none, GradientCheckpointing::selective, GradientCheckpointing::block}) {
    model.set_gradient_checkpointing(level);
    const at::Tensor loss = model.loss(ids, targets, {.attention_window = 3});
    EXPECT_TRUE(loss.equal(expected));
    loss.backward();
    const std::vector<at::Tensor> own = gradients(model);
    for (size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(own[i].equal(gradient[i])) << model.parameters().rows()[i].name;
  }
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(model.loss(ids, targets).equal(other.loss(ids, targets)));
  EXPECT_TRUE(GPT(whole, at::kCPU, 1).loss(ids, targets, {.attention_window = 3}).equal(expected));
}

class CachedForms : public testing::TestWithParam<std::tuple<DeviceCase, const char*>> {
 protected:
  void SetUp() override { GPT_SKIP_WITHOUT(std::get<0>(GetParam())); }
};

TEST_P(CachedForms, LogitsEqualTheUncachedOnes) {
  const auto fixture =
      test::read_fixture(std::get<1>(GetParam()));  // weights large enough for attention to be far from uniform
  const ModelConfig config = fixture.model_config();
  const GPT model(config, std::get<0>(GetParam()).device, fixture.group("initial."));
  at::NoGradGuard no_grad;
  const at::Tensor ids = random_ids(3, config.block_size, 1).to(model.device());
  const at::Tensor expected = model.forward(ids);
  // Both sides round.
  const int64_t roundings =
      2 * config.n_layer * (5 * config.n_embd + config.head_dim() + config.block_size + config.hidden());
  const double bound = test::tolerance(at::kFloat, roundings, expected.abs().max().item<double>());
  for (const auto& chunks : std::vector<std::vector<int64_t>>{{16}, {1, 15}, {5, 4, 1, 1, 1, 2, 2}}) {
    KvCache cache = model.make_cache(3, config.block_size, at::kFloat);
    for (const int64_t t : chunks) {
      const int64_t end = cache.lengths[0] + t;
      const at::Tensor logits = test::forward_cached(model, ids.narrow(1, cache.lengths[0], t), cache);
      EXPECT_LE((logits - expected.select(1, end - 1)).abs().max().item<double>(), bound) << end << " of chunk " << t;
      EXPECT_EQ(cache.lengths, std::vector<int64_t>(3, end));
    }
    EXPECT_EQ(cache.lengths[0], config.block_size);
    EXPECT_THROW(test::forward_cached(model, ids.narrow(1, 0, 1), cache), c10::Error);
  }
}

// Some get whole prompts while others get a token, slots lie in any order, and one is used again.
TEST_P(CachedForms, TextsOfDifferentLengthsAreIndependent) {
  const auto fixture = test::read_fixture(std::get<1>(GetParam()));
  const ModelConfig config = fixture.model_config();
  const GPT model(config, std::get<0>(GetParam()).device, fixture.group("initial."));
  at::NoGradGuard no_grad;
  const at::Tensor ids = random_ids(4, config.block_size, 1);
  const at::Tensor expected = model.forward(ids.to(model.device()));
  const int64_t roundings =
      2 * config.n_layer * (5 * config.n_embd + config.head_dim() + config.block_size + config.hidden());
  const double bound = test::tolerance(at::kFloat, roundings, expected.abs().max().item<double>());
  KvCache cache = model.make_cache(4, config.block_size, at::kFloat);
  std::vector<int64_t> text_of_slot{0, 1, 2, 3};
  // For each step: slots, and how many tokens each of them gets.
  const std::vector<std::vector<std::pair<int64_t, int64_t>>> steps{{{2, 5}, {0, 7}},
                                                                    {{0, 1}, {1, 1}, {2, 1}},
                                                                    {{1, 1}, {2, 2}, {0, 1}},
                                                                    {{3, 9}, {0, 1}},
                                                                    {{0, 1}, {1, 1}, {2, 1}, {3, 1}}};
  const auto check = [&](const std::vector<std::pair<int64_t, int64_t>>& step) {
    std::vector<std::vector<int32_t>> tokens;
    std::vector<NextTokens> next;
    for (const auto& [slot, count] : step) {
      const at::Tensor part = ids[text_of_slot[slot]].narrow(0, cache.lengths[slot], count).to(at::kInt).contiguous();
      tokens.emplace_back(part.const_data_ptr<int32_t>(), part.const_data_ptr<int32_t>() + count);
    }
    for (size_t i = 0; i < step.size(); ++i) next.push_back({step[i].first, tokens[i]});
    const at::Tensor logits = model.forward_cached(next, cache);
    for (size_t i = 0; i < step.size(); ++i) {
      const int64_t slot = step[i].first, end = cache.lengths[slot];
      EXPECT_LE((logits[i] - expected[text_of_slot[slot]][end - 1]).abs().max().item<double>(), bound)
          << "slot " << slot << " at " << end;
    }
  };
  for (const auto& step : steps) check(step);
  cache.lengths[1] = 0, text_of_slot[1] = 3;
  check({{1, 6}, {2, 1}});
}

INSTANTIATE_TEST_SUITE_P(Forms, CachedForms,
                         testing::Combine(testing::ValuesIn(kDevices),
                                          testing::Values("gpt2_form", "llama_form", "qwen3_form", "gemma3_form",
                                                          "olmo2_form", "arcee_form", "default_form")),
                         [](const auto& test) {
                           return std::string(std::get<1>(test.param)) + "_" + std::get<0>(test.param).name;
                         });

// Both architectures, with our operators and with ATen's: everything between embedding and loss has 16 bits, and what comes out is
// that of float32 weights within their rounding, over some 16 operators one after another.
TEST_P(GPTOnDevice, EndToEndInSixteenBitsIsWithinTheirRounding) {
  ModelConfig gpt2 = tiny_config();
  gpt2.norm = Norm::layernorm, gpt2.mlp = Mlp::gelu, gpt2.position = Position::learned, gpt2.bias = true;
  const at::Tensor ids = random_ids(2, 17, 5).to(device()), inputs = ids.narrow(1, 0, 16),
                   targets = ids.narrow(1, 1, 16);
  for (const ModelConfig& config : {tiny_config(), gpt2}) {
    GPT exact(config, device(), 3), rounded(config, device(), 3, {.compute = at::kBFloat16});
    for (const bool ours : {true, false}) {
      rounded.set_operators(ours ? ops::fused_operators() : ops::aten_operators());
      for (GPT* model : {&exact, &rounded}) model->loss(inputs, targets).backward();
      const std::vector<at::Tensor> expected = gradients(exact), found = gradients(rounded);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(found[i].scalar_type(), at::kFloat);
        const double norm = expected[i].norm().item<double>();
        EXPECT_LT((found[i] - expected[i]).norm().item<double>(), test::tolerance(at::kBFloat16, 16, norm))
            << exact.parameters().rows()[i].name << (ours ? ", ours" : ", ATen's");
      }
      at::NoGradGuard no_grad;
      const at::Tensor logits = rounded.forward(inputs), wanted = exact.forward(inputs);
      EXPECT_EQ(logits.scalar_type(), at::kBFloat16);
      EXPECT_LT((logits - wanted).norm().item<double>(),
                test::tolerance(at::kBFloat16, 16, wanted.norm().item<double>()));
      KvCache cache = rounded.make_cache(2, 16, at::kBFloat16);
      const at::Tensor last = test::forward_cached(rounded, inputs, cache);
      EXPECT_LT((last - wanted.select(1, 15)).norm().item<double>(),
                test::tolerance(at::kBFloat16, 16, wanted.select(1, 15).norm().item<double>()));
    }
  }
}

INSTANTIATE_ON_DEVICES(GPTOnDevice);

TEST(GPT, RefusesWeightsOfAnotherArchitecture) {
  const auto message = [&](const parameters::NamedTensors& values) -> std::string {
    try {
      const GPT model(tiny_config(), at::kCPU, values);
      for (const auto& [name, tensor] : values) EXPECT_TRUE(parameter(model, name).equal(tensor)) << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint);
      return error.what();
    }
    return "";
  };
  parameters::NamedTensors values = GPT(tiny_config(), at::kCPU, 1).parameters().values();
  EXPECT_EQ(message(values), "");
  parameters::NamedTensors missing = values, extra = values, misshapen = values;
  missing.pop_back();
  EXPECT_NE(message(missing).find("model/transformer.ln_f.weight is missing"), std::string::npos);
  extra.emplace_back("lm_head.weight", values[0].second);
  EXPECT_NE(message(extra).find("model/lm_head.weight is not part of the model"), std::string::npos);
  misshapen.back().second = misshapen.back().second.narrow(0, 0, 31);
  EXPECT_NE(message(misshapen).find("model/transformer.ln_f.weight has the shape [31], and [32] in the model"),
            std::string::npos);
}

std::string open_part;

class NotesParts : public ops::WrappedOperators {
 public:
  explicit NotesParts(std::vector<std::string>& parts) : WrappedOperators(ops::fused_operators()), parts_(parts) {}
  at::Tensor linear(const at::Tensor& x, const ops::LinearLayer& layer, ops::ProductInput input) const override {
    parts_.push_back(open_part);
    return inner_->linear(x, layer, input);
  }
  std::pair<at::Tensor, at::Tensor> linear_pair(const at::Tensor& x, const ops::LinearLayer& first,
                                                const ops::LinearLayer& second,
                                                ops::ProductInput input) const override {
    parts_.push_back(open_part);
    return inner_->linear_pair(x, first, second, input);
  }

 private:
  std::vector<std::string>& parts_;
};

// Sites tell operators where they are called, for those that do something else there.
class NotesSites : public ops::WrappedOperators {
 public:
  explicit NotesSites(std::vector<std::pair<layout::ParameterRole, int64_t>>& sites)
      : WrappedOperators(ops::fused_operators()), sites_(sites) {}
  at::Tensor linear(const at::Tensor& x, const ops::LinearLayer& layer, ops::ProductInput input) const override {
    sites_.emplace_back(layer.site.role, layer.site.layer);
    return inner_->linear(x, layer, input);
  }
  at::Tensor linear_activated(ops::Activation activation, const at::Tensor& x, const ops::LinearLayer& layer,
                              ops::ProductInput input) const override {
    sites_.emplace_back(layer.site.role, layer.site.layer);
    return inner_->linear_activated(activation, x, layer, input);
  }
  std::pair<at::Tensor, at::Tensor> linear_pair(const at::Tensor& x, const ops::LinearLayer& first,
                                                const ops::LinearLayer& second,
                                                ops::ProductInput input) const override {
    for (const ops::Site& site : {first.site, second.site}) sites_.emplace_back(site.role, site.layer);
    return inner_->linear_pair(x, first, second, input);
  }

 private:
  std::vector<std::pair<layout::ParameterRole, int64_t>>& sites_;
};

TEST(GPT, EachProductKnowsItsSite) {
  using enum layout::ParameterRole;
  for (const Mlp kind : {Mlp::swiglu, Mlp::gelu, Mlp::relu2}) {
    ModelConfig config = tiny_config();
    config.mlp = kind;
    std::vector<std::pair<layout::ParameterRole, int64_t>> sites, expected;
    for (int64_t layer = 0; layer < config.n_layer; ++layer) {
      for (const layout::ParameterRole role : {attention_in, attention_out}) expected.emplace_back(role, layer);
      if (kind == Mlp::swiglu) expected.emplace_back(mlp_gate, layer);
      for (const layout::ParameterRole role : {mlp_in, mlp_out}) expected.emplace_back(role, layer);
    }
    expected.emplace_back(head, config.n_layer);
    GPT model(config, at::kCPU, 1);
    model.set_operators(std::make_shared<NotesSites>(sites));
    (void)model.forward(random_ids(1, 4, 1));
    EXPECT_EQ(sites, expected);
  }
}

// gpt-bench profile then counts the products' backward passes too.
TEST(GPT, TheProductsOfABlockBelongToTheirPart) {
  std::vector<std::string> parts_of_products;
  GPT model(tiny_config(), at::kCPU, 1);
  model.set_operators(std::make_shared<NotesParts>(parts_of_products));
  const auto enter = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    open_part = function.name();
    return nullptr;
  };
  const auto leave = [](const at::RecordFunction&, at::ObserverContext*) { open_part = "none"; };
  const auto handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(enter, leave).scopes({at::RecordScope::USER_SCOPE}));
  (void)model.loss(random_ids(2, 16, 1), random_ids(2, 16, 2));
  at::removeCallback(handle);
  // Attention's two, gate and in, and out, of each block.
  EXPECT_EQ(parts_of_products, std::vector<std::string>(2 * 4, ops::part::kProducts));
}

TEST(GPT, CountsItsParametersAndWork) {
  ModelConfig config = tiny_config();
  config.position = Position::learned;
  const int64_t block = 2 * 32 + (4 + 2 * 2) * 8 * 32 + 32 * 32 + 3 * 128 * 32;
  const int64_t vocabulary = 128 * 32, positions = 16 * 32, rest = 2 * block + 32;
  const GPT tied(config, at::kCPU, 1);
  EXPECT_EQ(tied.parameters().count(), vocabulary + positions + rest);
  EXPECT_EQ(tied.flops_per_token(), 6.0 * (vocabulary + rest) + 12.0 * 2 * 32 * 16);
  ModelConfig windowed = config;
  windowed.attention_window = 4, windowed.window_pattern = "S";  // the first layer: 4 * 5 / 2 + 12 * 4 scores of 136
  EXPECT_NEAR(GPT(windowed, at::kCPU, 1).flops_per_token(),
              6.0 * (vocabulary + rest) + 12.0 * (58.0 / 136 + 1) * 32 * 16, 1e-6);
  config.tie_weights = false;
  const GPT untied(config, at::kCPU, 1);
  EXPECT_EQ(untied.parameters().count(), 2 * vocabulary + positions + rest);
  EXPECT_EQ(untied.flops_per_token(), tied.flops_per_token());
}

}  // namespace
}  // namespace gpt::model
