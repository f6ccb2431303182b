// Generating with weights of 16 bits is generating in float32 with the same values.
#include "gpt/ops/narrow_weights.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <ATen/ops/randint.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "gpt/device/host.h"
#include "gpt/model/gpt.h"
#include "gpt/products/row_product.h"
#include "support/cached_batch.h"
#include "support/model_forms.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

class NarrowWeights : public testing::TestWithParam<test::ModelForm> {
 protected:
  // Logits of a prompt of so many tokens and of the token behind it.
  static std::vector<at::Tensor> logits(const model::GPT& model, int64_t prompt) {
    const c10::InferenceMode inference;
    model::KvCache cache = model.make_cache(1, 32, at::kFloat);
    const at::Tensor ids = at::randint(0, 101, {1, prompt + 1}, at::kLong);
    return {test::forward_cached(model, ids.narrow(1, 0, prompt), cache),
            test::forward_cached(model, ids.narrow(1, prompt, 1), cache)};
  }
};

TEST_P(NarrowWeights, ComputeWhatFloat32ComputesWithTheSameValues) {
  const ModelConfig config = test::config_of(GetParam());
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const model::GPT drawn(config, at::kCPU, 1);
    model::GPT narrow(config, at::kCPU, drawn.parameters().values(), {.compute = type, .has_master = false});
    narrow.set_operators(narrow_weight_operators(narrow.parameters()));
    const model::GPT wide(config, at::kCPU, narrow.parameters().values());
    ASSERT_EQ(narrow.parameters().flat_values().scalar_type(), type);
    ASSERT_EQ(wide.parameters().flat_values().scalar_type(), at::kFloat);
    for (const int64_t prompt : {3, 20}) {  // few rows, and many
      at::manual_seed(prompt);
      const auto found = logits(narrow, prompt);
      at::manual_seed(prompt);
      const auto expected = logits(wide, prompt);
      // Many rows may be multiplied in bfloat16.
      const bool is_rounded = prompt > kMostFewRows && type == at::kBFloat16 && host::cpu_has_bfloat16();
      for (size_t i = 0; i < found.size(); ++i) {
        const double magnitude = expected[i].abs().max().item<double>();
        EXPECT_LE((found[i] - expected[i]).abs().max().item<double>(),
                  test::tolerance(is_rounded ? at::kBFloat16 : at::kFloat, 64, magnitude))
            << c10::toString(type) << ", prompt of " << prompt << ", " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, NarrowWeights, test::model_forms(), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gpt::ops
