// A model of 8 or 4 bits computes what the same values compute in float32.
#include "gpt/model/quantized_model.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <ATen/ops/randint.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/cached_batch.h"
#include "support/expect_error.h"
#include "support/model_forms.h"

namespace gpt::model {
namespace {

// What the quantized tensors stand for.
parameters::NamedTensors values_of(const QuantizedTensors& tensors) {
  parameters::NamedTensors values = tensors.others;
  for (const auto& [name, weight] : tensors.matrices) values.emplace_back(name, parameters::dequantize(weight));
  return values;
}

class QuantizedModel : public testing::TestWithParam<test::ModelForm> {
 protected:
  // Logits of a prompt, of the token behind it, and of all at once.
  static std::vector<at::Tensor> logits(const GPT& model, int64_t prompt) {
    const c10::InferenceMode inference;
    KvCache cache = model.make_cache(1, 32, at::kFloat);
    const at::Tensor ids = at::randint(0, 101, {1, prompt + 1}, at::kLong);
    return {test::forward_cached(model, ids.narrow(1, 0, prompt), cache),
            test::forward_cached(model, ids.narrow(1, prompt, 1), cache), model.forward(ids)};
  }
};

TEST_P(QuantizedModel, ComputesWhatItsValuesComputeInFloat32) {
  const ModelConfig config = test::config_of(GetParam());
  for (const parameters::QuantizedType type : {parameters::QuantizedType::int8, parameters::QuantizedType::int4}) {
    const GPT drawn(config, at::kCPU, 1);
    const QuantizedTensors tensors = quantize(config, drawn.parameters().values(), type);
    const GPT wide(config, at::kCPU, values_of(tensors));
    const auto quantized = quantized_gpt(config, tensors);
    EXPECT_EQ(quantized->device(), at::kCPU);
    EXPECT_EQ(quantized->parameters().count(), drawn.parameters().count());
    EXPECT_LT(weight_bytes(*quantized), weight_bytes(drawn) * (type == parameters::QuantizedType::int8 ? 0.4 : 0.35));
    for (const int64_t prompt : {3, 20}) {  // few rows, and many
      at::manual_seed(prompt);
      const auto found = logits(*quantized, prompt);
      at::manual_seed(prompt);
      const auto expected = logits(wide, prompt);
      for (size_t i = 0; i < found.size(); ++i) {
        // Rounding activations to 8 bits changes each product by less than 1 %: a value by at most 1/254 of the largest of its group,
        // which is about 2.5 standard deviations, and by 0.6 of that at random. The residual stream adds two such branches a layer.
        const double spread = expected[i].std().item<double>(), error = (found[i] - expected[i]).std().item<double>();
        EXPECT_LE(error, 0.03 * spread) << name_of(type) << ", prompt of " << prompt << ", " << i;
        EXPECT_GT(error, 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, QuantizedModel, test::model_forms(), [](const auto& info) { return info.param.name; });

TEST(QuantizedTypes, TablesAndHeadsHaveEightBits) {
  const ModelConfig config = test::config_of({"", Mlp::gelu, Norm::layernorm, Position::learned, true, false});
  int tables = 0, layers = 0, others = 0;
  for (const layout::ParameterRow& row : layout::parameter_table(config)) {
    const auto type = quantized_type(row, parameters::QuantizedType::int4);
    tables += type == parameters::QuantizedType::int8, layers += type == parameters::QuantizedType::int4,
        others += !type;
    EXPECT_EQ(type == parameters::QuantizedType::int8,
              row.name == "transformer.wte.weight" || row.name == "lm_head.weight")
        << row.name;
    EXPECT_EQ(!type.has_value(), row.shape.size() == 1 || row.name == "transformer.wpe.weight") << row.name;
  }
  EXPECT_EQ(tables, 2);
  EXPECT_EQ(layers, 2 * 4);
  EXPECT_GT(others, 0);
}

TEST(QuantizedTypes, WhatIsNotFiniteIsRefused) {
  const ModelConfig config = test::config_of({"", Mlp::gelu, Norm::layernorm, Position::learned, true, true});
  parameters::NamedTensors values = GPT(config, at::kCPU, 1).parameters().values();
  values[0].second.detach()[3][2] = std::numeric_limits<float>::infinity();
  EXPECT_ERROR((void)quantize(config, values, parameters::QuantizedType::int8), ExitCode::numerics,
               "'transformer.wte.weight' holds");
  values.erase(values.begin());
  EXPECT_ERROR((void)quantize(config, values, parameters::QuantizedType::int8), ExitCode::checkpoint, "is missing");
}

}  // namespace
}  // namespace gpt::model
