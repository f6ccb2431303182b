// A model with adapters computes what the model with the sums of both computes, and its gradients follow from those of that one.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "gpt/checkpoint/adapters.h"
#include "gpt/device/precision.h"
#include "gpt/layout/tuning.h"
#include "gpt/model/gpt.h"
#include "gpt/ops/operator_sets.h"
#include "support/device_cases.h"
#include "support/restore_context.h"

namespace gpt::model {
namespace {

constexpr int64_t kLoraWords = 61;

ModelConfig llama_of_lora() {
  ModelConfig config;
  config.n_layer = 2, config.n_head = 4, config.n_kv_head = 2, config.n_embd = 32, config.block_size = 8;
  config.vocab_size = kLoraWords, config.dropout = 0;
  return config;
}

ModelConfig gpt2_of_lora() {
  ModelConfig config = llama_of_lora();
  config.n_kv_head = 4;
  config.norm = Norm::layernorm, config.mlp = Mlp::gelu, config.position = Position::learned, config.bias = true;
  return config;
}

TuningConfig lora(std::vector<std::string> targets, std::vector<std::string> also_train = {}) {
  TuningConfig tuning;
  tuning.lora.rank = 3, tuning.lora.alpha = 4.5, tuning.lora.is_alpha_automatic = false,
  tuning.lora.targets = std::move(targets), tuning.lora.also_train = std::move(also_train);
  return tuning;
}

// Values of a model whose B are no zeros any more.
parameters::NamedTensors some_values(const ModelConfig& config, const TuningConfig& tuning) {
  parameters::NamedTensors values = GPT(config, at::kCPU, 1, {}, tuning).parameters().values();
  at::Generator generator = at::detail::createCPUGenerator(3);
  for (auto& [name, tensor] : values) {
    tensor = tensor.detach().clone();
    if (name.ends_with(".lora_B")) tensor.normal_(0, 0.05, generator);
  }
  return values;
}

parameters::NamedTensors merged(const ModelConfig& config, const TuningConfig& tuning,
                                parameters::NamedTensors values) {
  checkpoint::Checkpoint checkpoint;
  checkpoint.config.model = config;
  checkpoint.config.training.tuning = tuning;
  checkpoint.model = std::move(values);
  checkpoint::merge_adapters(checkpoint);
  EXPECT_FALSE(checkpoint.config.training.tuning.lora.is_on());
  return checkpoint.model;
}

class LoraTest : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(GetParam());
    device::apply_precision({}, /*deterministic=*/true);
  }
  at::Tensor ids(uint64_t seed) const {
    return at::randint(kLoraWords, {2, 8}, at::detail::createCPUGenerator(seed), at::dtype(at::kLong))
        .to(GetParam().device);
  }

  struct Result {
    double loss = 0;
    std::map<std::string, at::Tensor> gradients;  // on the CPU
  };
  Result result(GPT& model, GradientCheckpointing level) const {
    model.set_gradient_checkpointing(level);
    model.train(true);
    Result result;
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      const at::Tensor loss = model.loss(ids(1 + 2 * micro_batch), ids(2 + 2 * micro_batch));
      loss.backward();
      result.loss += loss.item<double>();
    }
    for (const auto& [name, gradient] : model.parameters().gradients()) result.gradients[name] = gradient.cpu();
    return result;
  }

  RestoreContext restore_;
};

struct LoraCase {
  ModelConfig config;
  std::vector<std::string> targets, also_train = {};
};

std::vector<LoraCase> cases() {
  return {{llama_of_lora(), {"all-linear"}},
          {llama_of_lora(), {"q_proj", "v_proj", "down_proj"}},
          {gpt2_of_lora(), {"all-linear"}},
          {gpt2_of_lora(), {"k_proj", "up_proj"}},
          {llama_of_lora(), {"all-linear"}, {"norms", "embeddings"}},
          {gpt2_of_lora(), {"q_proj"}, {"wte", "h.1.ln_2", "h.0.mlp.c_proj"}}};
}

// The gradient of W + s B A is G: that of A is s B^T G, and that of B is s G A^T, of the rows of each product apart. What is trained whole
// has that of the merged model.
TEST_P(LoraTest, LossAndGradientsFollowFromThoseOfTheMergedModel) {
  using enum GradientCheckpointing;
  for (const auto& [config, targets, also_train] : cases()) {
    const TuningConfig tuning = lora(targets, also_train);
    const parameters::NamedTensors values = some_values(config, tuning);
    const std::map<std::string, at::Tensor> by_name(values.begin(), values.end());
    GPT whole(config, GetParam().device, merged(config, tuning, values));
    const Result expected = result(whole, none);
    for (const ops::SharedOperators& operators : {ops::fused_operators(), ops::aten_operators()}) {
      for (const GradientCheckpointing level : {none, norm, selective, block}) {
        SCOPED_TRACE(testing::PrintToString(targets) + ", level " + std::to_string(static_cast<int>(level)) +
                     (operators == ops::fused_operators() ? "" : ", ATen's"));
        GPT model(config, GetParam().device, values, {}, tuning);
        model.set_operators(operators);
        const Result found = result(model, level);
        EXPECT_NEAR(found.loss, expected.loss, 1e-5);
        for (const layout::ParameterRow& row : model.parameters().rows()) {
          ASSERT_EQ(found.gradients.contains(row.name), row.is_trained) << row.name;
          if (layout::is_trained_whole(row)) {
            const at::Tensor &own = found.gradients.at(row.name), &of_merged = expected.gradients.at(row.name);
            EXPECT_TRUE(at::allclose(own, of_merged, 1e-4, 1e-5 * of_merged.abs().max().item<double>())) << row.name;
          }
          if (!row.adapter) continue;
          const std::string name = row.name.substr(0, row.name.rfind('.'));
          const at::Tensor gradient = expected.gradients.at(name + ".weight"), a = by_name.at(name + ".lora_A"),
                           b = by_name.at(name + ".lora_B"), of_row = at::zeros_like(by_name.at(row.name));
          int64_t ranks = 0, of_b = 0;
          for (const auto& [begin, length] : row.adapter->outputs) {
            const at::Tensor own = gradient.narrow(0, begin, length);
            if (row.adapter->is_a)
              of_row.narrow(0, ranks, 3) += 1.5 * at::mm(b.narrow(0, of_b, length).t(), own);
            else
              of_row.narrow(0, of_b, length) += 1.5 * at::mm(own, a.narrow(0, ranks, 3).t());
            ranks += 3, of_b += length;
          }
          // Sums of at most 96 products of float32, each of which is rounded to 2^-24 of the largest.
          EXPECT_TRUE(
              at::allclose(found.gradients.at(row.name), of_row, 1e-4, 1e-5 * of_row.abs().max().item<double>()))
              << row.name << ": " << (found.gradients.at(row.name) - of_row).abs().max().item<double>() << " of "
              << of_row.abs().max().item<double>();
        }
      }
    }
  }
}

TEST_P(LoraTest, GeneratesAsTheMergedModelDoes) {
  for (const auto& [config, targets, also_train] : cases()) {
    const TuningConfig tuning = lora(targets, also_train);
    const parameters::NamedTensors values = some_values(config, tuning);
    const c10::InferenceMode inference;
    const GPT whole(config, GetParam().device, merged(config, tuning, values)),
        model(config, GetParam().device, values, {}, tuning);
    const at::Tensor expected = whole.forward(ids(1)), found = model.forward(ids(1));
    EXPECT_TRUE(at::allclose(found, expected, 1e-4, 1e-5)) << (found - expected).abs().max().item<double>();
    KvCache own = model.make_cache(1, 8, at::kFloat), of_whole = whole.make_cache(1, 8, at::kFloat);
    const std::vector<int32_t> text{3, 1, 4};
    const std::vector<NextTokens> next{{0, text}};
    EXPECT_TRUE(at::allclose(model.forward_cached(next, own), whole.forward_cached(next, of_whole), 1e-4, 1e-5));
  }
}

// What the model in few bits stands for, in float32.
parameters::NamedTensors unpacked(const GPT& model) {
  parameters::NamedTensors values = model.parameters().values();
  for (size_t i = 0; i < values.size(); ++i)
    if (model.parameters()[i].is_narrow()) values[i].second = model.parameters()[i].frozen().unpacked(at::kFloat);
  return values;
}

// A product of the same two matrices is the same product.
TEST_P(LoraTest, ABaseInFewBitsIsTrainedAsItsValuesAreInFloat32) {
  using enum GradientCheckpointing;
  if (!GetParam().device.is_cpu()) GTEST_SKIP() << "it is refused on a GPU";
  for (const auto& [config, targets, also_train] : cases()) {
    for (const BaseType base : {BaseType::bfloat16, BaseType::int8, BaseType::int4}) {
      TuningConfig tuning = lora(targets, also_train);
      const parameters::NamedTensors values = some_values(config, tuning);
      tuning.lora.base = base;
      GPT narrow(config, at::kCPU, values, {}, tuning);
      GPT wide(config, at::kCPU, unpacked(narrow), {}, lora(targets, also_train));
      EXPECT_LT(narrow.parameters().value_bytes(), wide.parameters().value_bytes());
      for (const ops::SharedOperators& operators : {ops::fused_operators(), ops::aten_operators()}) {
        narrow.set_operators(operators), wide.set_operators(operators);
        for (const GradientCheckpointing level : {none, norm, block}) {
          SCOPED_TRACE(testing::PrintToString(targets) + ", base " + std::to_string(static_cast<int>(base)) +
                       ", level " + std::to_string(static_cast<int>(level)) +
                       (operators == ops::fused_operators() ? "" : ", ATen's"));
          const Result found = result(narrow, level), expected = result(wide, level);
          EXPECT_EQ(found.loss, expected.loss);
          ASSERT_EQ(found.gradients.size(), expected.gradients.size());
          for (const auto& [name, gradient] : expected.gradients)
            EXPECT_TRUE(
                at::allclose(found.gradients.at(name), gradient, 1e-5, 1e-7 * gradient.abs().max().item<double>()))
                << name;
          narrow.parameters().clear_gradients(), wide.parameters().clear_gradients();
        }
      }
      narrow.set_operators(ops::fused_operators()), wide.set_operators(ops::fused_operators());
      narrow.train(false), wide.train(false);
      const c10::InferenceMode inference;
      EXPECT_TRUE(at::allclose(narrow.forward(ids(1)), wide.forward(ids(1)), 1e-5, 1e-6));
      KvCache own = narrow.make_cache(1, 8, at::kFloat), of_wide = wide.make_cache(1, 8, at::kFloat);
      const std::vector<int32_t> text{3, 1, 4};
      const std::vector<NextTokens> next{{0, text}};
      EXPECT_TRUE(at::allclose(narrow.forward_cached(next, own), wide.forward_cached(next, of_wide), 1e-5, 1e-6));
    }
  }
}

// LibTorch's operators make of the same mask what autograd makes of it.
TEST_P(LoraTest, DropoutIsOfWhatGoesIntoAnAdapterAlone) {
  using enum GradientCheckpointing;
  for (const auto& [config, targets, also_train] : cases()) {
    TuningConfig tuning = lora(targets, also_train);
    const parameters::NamedTensors values = some_values(config, tuning);
    GPT without(config, GetParam().device, values, {}, tuning);
    const Result plain = result(without, none);
    tuning.lora.dropout = 0.4;
    GPT reference(config, GetParam().device, values, {}, tuning);
    reference.set_operators(ops::aten_operators());
    const Result expected = result(reference, none);
    EXPECT_NE(expected.loss, plain.loss);
    for (const GradientCheckpointing level : {none, norm, selective, block}) {
      SCOPED_TRACE(testing::PrintToString(targets) + ", level " + std::to_string(static_cast<int>(level)));
      GPT model(config, GetParam().device, values, {}, tuning);
      const Result found = result(model, level);
      EXPECT_NEAR(found.loss, expected.loss, 1e-5);
      for (const auto& [name, gradient] : expected.gradients)
        EXPECT_TRUE(at::allclose(found.gradients.at(name), gradient, 1e-4, 1e-5 * gradient.abs().max().item<double>()))
            << name;
      model.train(false);
      const at::NoGradGuard no_gradients;
      EXPECT_TRUE(model.forward(ids(1)).equal(without.forward(ids(1)))) << "there is none in evaluation";
    }
    // With all of B zero an adapter adds nothing, whatever its mask.
    parameters::NamedTensors zeros = values;
    for (auto& [name, tensor] : zeros)
      if (name.ends_with(".lora_B")) tensor = at::zeros_like(tensor);
    GPT with_zeros(config, GetParam().device, zeros, {}, tuning);
    tuning.lora.dropout = 0;
    GPT plain_zeros(config, GetParam().device, zeros, {}, tuning);
    EXPECT_EQ(result(with_zeros, none).loss, result(plain_zeros, none).loss);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LoraTest, testing::ValuesIn(kDevices), testing::PrintToStringParamName());

TEST(Lora, ANewAdapterLeavesTheModelAsItIsAndItsAsDiffer) {
  const ModelConfig config = llama_of_lora();
  const TuningConfig tuning = lora({"all-linear"});
  const parameters::NamedTensors weights = GPT(config, at::kCPU, 7).parameters().values();
  const parameters::NamedTensors values =
      checkpoint::with_new_adapters(weights, layout::parameter_table(config, tuning), 9);
  EXPECT_EQ(values.size(), weights.size() + 2 * 2 * 5) << "two factors of five products of two layers";
  const parameters::NamedTensors sums = merged(config, tuning, values);
  ASSERT_EQ(sums.size(), weights.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(sums[i].first, weights[i].first);
    EXPECT_TRUE(sums[i].second.equal(weights[i].second)) << sums[i].first;
  }
  const std::map<std::string, at::Tensor> by_name(values.begin(), values.end());
  const at::Tensor &first = by_name.at("transformer.h.0.attn.c_attn.lora_A"),
                   &second = by_name.at("transformer.h.1.attn.c_attn.lora_A");
  EXPECT_EQ(first.sizes(), (std::vector<int64_t>{9, 32}));
  EXPECT_FALSE(first.equal(second));
  // The spread of 288 values is within 4 standard errors of 1 / sqrt(3 inputs).
  EXPECT_NEAR(first.std().item<double>(), 1 / std::sqrt(96.0), 4 / std::sqrt(96.0 * 2 * 288));
}

}  // namespace
}  // namespace gpt::model
