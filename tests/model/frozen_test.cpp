// What is not trained changes nothing else: the gradients of all other parameters keep their bits, with our operators and ATen's, on every
// device and with the CUDA kernels under emulation.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpt/device/precision.h"
#include "gpt/device/random_state.h"
#include "gpt/layout/tuning.h"
#include "gpt/model/compile.h"
#include "gpt/model/gpt.h"
#include "gpt/ops/operator_sets.h"
#include "support/device_cases.h"
#include "support/dropout_at.h"
#include "support/emulated_kernels.h"
#include "support/restore_context.h"

namespace gpt::model {
namespace {

constexpr int64_t kWords = 61;

ModelConfig llama() {
  ModelConfig config;
  config.n_layer = 3, config.n_head = 2, config.n_kv_head = 1, config.n_embd = 16, config.block_size = 8;
  config.vocab_size = kWords, config.dropout = 0.1;
  return config;
}

ModelConfig gpt2() {
  ModelConfig config = llama();
  config.n_kv_head = 2;
  config.norm = Norm::layernorm, config.mlp = Mlp::gelu, config.position = Position::learned, config.bias = true;
  return config;
}

ModelConfig untied(ModelConfig config) {
  config.tie_weights = false;
  return config;
}

class FrozenTest : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(GetParam());
    device::apply_precision({}, /*deterministic=*/true);
    (void)select_operators({}, GetParam().device);  // allows LibTorch every kernel
    if (GetParam().is_emulated) emulated_.emplace();
  }
  at::Tensor ids(uint64_t seed) const {
    return at::randint(kWords, {2, 8}, at::detail::createCPUGenerator(seed), at::dtype(at::kLong))
        .to(GetParam().device);
  }

  // The loss and, after two micro-batches, the gradients.
  struct Result {
    double loss = 0;
    std::map<std::string, at::Tensor> gradients;
  };
  Result result(const ModelConfig& config, const std::vector<std::string>& frozen, GradientCheckpointing level,
                const ops::SharedOperators& operators, at::ScalarType type) const {
    device::seed_random_state(GetParam().device, 1);  // of the masks of attention, which are LibTorch's on a GPU
    GPT model(config, GetParam().device, 1, {.compute = type}, {.freeze = frozen});
    model.set_operators(operators);
    model.set_gradient_checkpointing(level);
    model.train(operators == ops::fused_operators());  // ATen's masks come from a generator
    Result result;
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      const at::Tensor loss =
          model.loss(ids(1), ids(2), {.dropout_place = test::dropout_at(GetParam().device, 0, 7, micro_batch).place});
      loss.backward();
      result.loss += loss.item<double>();
    }
    (void)model.parameters().flat_gradients();  // throws where one is missing
    for (const auto& [name, gradient] : model.parameters().gradients()) result.gradients[name] = gradient.clone();
    return result;
  }

  RestoreContext restore_;
  std::optional<test::EmulatedKernels> emulated_;
};

struct FrozenCase {
  ModelConfig config;
  std::vector<std::string> frozen;
};

TEST_P(FrozenTest, OtherGradientsKeepTheirBits) {
  using enum GradientCheckpointing;
  const std::vector<FrozenCase> cases{
      {gpt2(), {"wte"}},
      {gpt2(), {"wpe", "h.1"}},
      {gpt2(), {"wte", "wpe", "h.0"}},
      {gpt2(), {"wte", "wpe", "h", "ln_f.weight"}},
      {gpt2(), {"wte", "wpe", "h.*.*.*.weight", "h.*.ln_1.weight", "h.*.ln_2.weight", "ln_f"}},  // biases are left
      {llama(), {"wte", "h.0-1"}},
      {llama(), {"h.*.mlp.w1", "h.2.attn.c_proj", "ln_f"}},
      {untied(llama()), {"wte", "h", "ln_f"}},
      {untied(gpt2()), {"lm_head", "h.0"}},
  };
  for (const auto& [config, frozen] : cases) {
    for (const ops::SharedOperators& operators : {ops::fused_operators(), ops::aten_operators()}) {
      const bool ours = operators == ops::fused_operators(), is_emulated = GetParam().is_emulated;
      if (is_emulated && !ours) continue;
      // Emulation takes long, and only the kernels are others there.
      const std::vector levels = is_emulated ? std::vector{none} : std::vector{none, norm, selective, block};
      for (const GradientCheckpointing level : levels) {
        for (const at::ScalarType type :
             is_emulated ? std::vector{at::kFloat} : std::vector{at::kFloat, at::kBFloat16}) {
          SCOPED_TRACE(testing::PrintToString(frozen) + ", level " + std::to_string(static_cast<int>(level)) +
                       c10::toString(type) + (ours ? "" : ", ATen's"));
          const Result expected = result(config, {}, level, operators, type),
                       found = result(config, frozen, level, operators, type);
          EXPECT_EQ(found.loss, expected.loss);
          for (const layout::ParameterRow& row : layout::parameter_table(config, {.freeze = frozen})) {
            ASSERT_EQ(found.gradients.contains(row.name), row.is_trained) << row.name;
            if (!row.is_trained) continue;
            EXPECT_TRUE(found.gradients.at(row.name).equal(expected.gradients.at(row.name))) << row.name;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, FrozenTest, testing::ValuesIn(kDevicesAndEmulation),
                         testing::PrintToStringParamName());

TEST(Frozen, HaveNoGradientNoMasterAndNoSecondValue) {
  const GPT model(gpt2(), at::kCPU, 1, {.compute = at::kBFloat16}, {.freeze = {"wte", "h.0"}});
  const parameters::Parameters& parameters = model.parameters();
  const layout::FlatLayout& layout = parameters.layout();
  EXPECT_LT(layout.trained_size, layout.size);
  EXPECT_EQ(parameters.flat_values().numel(), layout.trained_size);
  EXPECT_EQ(parameters.flat_rounded().numel(), layout.size);
  EXPECT_EQ(parameters.gradient_buffer(0).numel(), layout.trained_size);
  int64_t kept = 0;
  for (const at::Tensor& part : parameters.kept_values()) kept += part.numel();
  EXPECT_EQ(kept, layout.size);
  const parameters::Parameter frozen = parameters.weight(layout::ParameterRole::token_embedding, -1);
  EXPECT_EQ(frozen.value().scalar_type(), at::kBFloat16);
  EXPECT_TRUE(frozen.compute_value().is_same(frozen.value()));
  EXPECT_FALSE(frozen.value().requires_grad());
  EXPECT_THROW((void)frozen.gradient(), c10::Error);
}

// All weights are those that are drawn without freezing; what is not trained is rounded where the model computes in 16 bits.
TEST(Frozen, ValuesAreThoseOfTheSameSeed) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const GPT all(gpt2(), at::kCPU, 1, {.compute = type}),
        some(gpt2(), at::kCPU, 1, {.compute = type}, {.freeze = {"h.1"}}),
        copied(gpt2(), at::kCPU, all.parameters().values(), {.compute = type}, {.freeze = {"h.1"}});
    const parameters::NamedTensors expected = all.parameters().values();
    for (const GPT* model : {&some, &copied}) {
      const parameters::NamedTensors found = model->parameters().values();
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(found[i].second.equal(expected[i].second.to(found[i].second.scalar_type()))) << found[i].first;
      EXPECT_TRUE(model->forward(at::zeros({1, 3}, at::kLong)).equal(all.forward(at::zeros({1, 3}, at::kLong))));
    }
  }
}

}  // namespace
}  // namespace gpt::model
