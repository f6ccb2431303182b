#include "gpt/model/compile.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/device/host_copies.h"
#include "gpt/device/random_state.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/ops/sdp_backends.h"
#include "support/captured_log.h"
#include "tests/support/device_cases.h"

namespace gpt::model {
namespace {

ModelConfig small_model() {
  ModelConfig model;
  model.n_layer = 2, model.n_head = 4, model.n_embd = 64, model.block_size = 48, model.vocab_size = 101;
  return model;
}

bool computes_by_aten(const GPT& model) { return model.operators() == ops::aten_operators(); }

// Ours, but for one that is wrong.
class WrongActivation : public ops::WrappedOperators {
 public:
  WrongActivation() : WrappedOperators(ops::fused_operators()) {}
  at::Tensor activate_gated(ops::Activation, const at::Tensor& gate, const at::Tensor& in,
                            const ops::DropoutSpec&) const override {
    return gate + in;
  }
};

class ThrowingEmbedding : public ops::WrappedOperators {
 public:
  explicit ThrowingEmbedding(std::string message)
      : WrappedOperators(ops::fused_operators()), message_(std::move(message)) {}
  at::Tensor embedding(const at::Tensor&, const parameters::Parameter&, const parameters::Parameter&, const at::Tensor&,
                       const ops::DropoutSpec&) const override {
    TORCH_CHECK(false, message_);
  }

 private:
  const std::string message_;
};

class CompileTest : public DeviceTest {};

TEST_P(CompileTest, KeepsTheOperatorsThatAgreeWithATen) {
  GPT model(small_model(), device(), 1);
  model.train(true);
  const at::Tensor weights = model.parameters().flat_values().clone(), state = device::random_state(device());
  test::CapturedLog log;
  EXPECT_TRUE(compile_model(model, TrainingConfig{}, device::Precision{}));
  const std::string said = log.text();
  EXPECT_NE(said.find("Compiling model..."), std::string::npos) << said;
  const char* const mode = device().is_cpu() ? "(default)" : "(max-autotune)";
  EXPECT_NE(said.find(std::string("Model compiled successfully ") + mode), std::string::npos) << said;
  EXPECT_FALSE(computes_by_aten(model));
  EXPECT_TRUE(model.training());
  EXPECT_TRUE(at::equal(model.parameters().flat_values(), weights));
  EXPECT_TRUE(at::equal(device::random_state(device()), state));
  EXPECT_ANY_THROW((void)model.parameters().flat_gradients()) << "gradients were left";
}

// LibTorch's would swap the buffer of all weights in each block.
TEST_P(CompileTest, SwapsNothingMeanwhile) {
  GPT model(small_model(), device(), 1);
  model.train(true);
  const auto swap = std::make_shared<ActivationSwap>(2, device::host_copies(device()));
  model.set_activation_swap(swap);
  const test::CapturedLog log;
  EXPECT_TRUE(compile_model(model, TrainingConfig{}, device::Precision{}));
  EXPECT_EQ(swap->host_bytes(), 0);
  EXPECT_EQ(model.activation_swap(), swap) << "the run does";
}

// As transformers makes it for the token that pads.
TEST_P(CompileTest, KeepsThemWhereAnEmbeddingIsZero) {
  ModelConfig config = small_model();
  config.n_layer = 18, config.norm_place = NormPlace::both, config.norm_eps = 1e-6;
  GPT model(config, device(), 1);
  model.train(true);
  const at::Tensor table = model.parameters().weight(layout::ParameterRole::token_embedding, -1).value();
  {
    const at::NoGradGuard no_gradients;
    table.select(0, 0).zero_();
  }
  const test::CapturedLog log;
  EXPECT_TRUE(compile_model(model, TrainingConfig{}, device::Precision{}));
}

TEST_P(CompileTest, FallsBackToATenWhereAnOperatorIsWrong) {
  GPT model(small_model(), device(), 1);
  model.set_operators(std::make_shared<WrongActivation>());
  test::CapturedLog log;
  EXPECT_FALSE(compile_model(model, TrainingConfig{}, device::Precision{}));
  const std::string said = log.text();
  EXPECT_NE(said.find("warning: Failed to compile: the loss is"), std::string::npos) << said;
  EXPECT_NE(said.find("warning: Continuing with uncompiled model"), std::string::npos) << said;
  EXPECT_TRUE(computes_by_aten(model));
}

TEST_P(CompileTest, FallsBackToATenWhereAnOperatorThrows) {
  GPT model(small_model(), device(), 1);
  model.set_operators(std::make_shared<ThrowingEmbedding>("no such kernel"));
  test::CapturedLog log;
  EXPECT_FALSE(compile_model(model, TrainingConfig{}, device::Precision{}));
  const std::string said = log.text();
  EXPECT_NE(said.find("Failed to compile: no such kernel\n"), std::string::npos) << said;
  EXPECT_TRUE(computes_by_aten(model));
}

TEST_P(CompileTest, WhereMemoryRunsOutTheModelIsLeftAsItWas) {
  GPT model(small_model(), device(), 1);
  model.train(true);
  model.set_operators(std::make_shared<ThrowingEmbedding>("out of memory"));
  test::CapturedLog log;
  EXPECT_THROW((void)compile_model(model, TrainingConfig{}, device::Precision{}), c10::Error);
  (void)log.text();
  EXPECT_FALSE(computes_by_aten(model));
  EXPECT_TRUE(model.training());
}

TEST_P(CompileTest, WithoutItATensOperatorsCompute) {
  TrainingConfig training;
  training.execution.use_compile = false;
  GPT model(small_model(), device(), 1);
  model.set_operators(select_operators(training.execution, device()));
  test::CapturedLog log;
  EXPECT_FALSE(compile_model(model, training, device::Precision{}));
  EXPECT_EQ(log.text(), "");
  EXPECT_TRUE(computes_by_aten(model));
}

TEST_P(CompileTest, SaysWhatReduceOverheadIsHere) {
  for (const bool is_eager : {false, true}) {
    TrainingConfig training;
    training.execution.compile_mode = CompileMode::reduce_overhead;
    training.optimizer.fused_adamw = !is_eager;
    GPT model(small_model(), device(), 1);
    test::CapturedLog log;
    EXPECT_TRUE(compile_model(model, training, device::Precision{}));
    const std::string said = log.text(), is = device().is_cpu() ? "is default on a CPU"
                                              : is_eager        ? "is default with fused_adamw: false"
                                                                : "";
    EXPECT_EQ(said.find("compile_mode reduce-overhead " + is) != std::string::npos, !is.empty()) << said;
    EXPECT_NE(said.find(is.empty() ? "successfully (reduce-overhead)" : "successfully (default)"), std::string::npos)
        << said;
  }
}

// A whole step, with both forms of the architecture: ours against ATen's.
TEST_P(CompileTest, BothSetsGiveTheSameLossAndGradient) {
  ModelConfig gpt2 = small_model();
  gpt2.norm = Norm::layernorm, gpt2.mlp = Mlp::gelu, gpt2.position = Position::learned, gpt2.bias = true;
  ModelConfig windowed = small_model();
  windowed.attention_window = 10, windowed.window_pattern = "S", windowed.dropout = 0;
  for (const ModelConfig& config : {small_model(), gpt2, windowed}) {
    GPT model(config, device(), 3);
    const at::Tensor ids = at::randint(*config.vocab_size, {2, config.block_size + 1}, at::kLong).to(device());
    const at::Tensor inputs = ids.narrow(1, 0, config.block_size), targets = ids.narrow(1, 1, config.block_size);
    at::Tensor losses[2], gradients[2];
    for (const bool ours : {false, true}) {
      model.set_operators(ours ? ops::fused_operators() : ops::aten_operators());
      losses[ours] = model.loss(inputs, targets, {.label_smoothing = 0.1});
      losses[ours].backward();
      gradients[ours] = model.parameters().flat_gradients().clone();
      model.parameters().clear_gradients();
    }
    EXPECT_NEAR(losses[1].item<double>(), losses[0].item<double>(), 1e-5);
    const double norm = gradients[0].norm().item<double>();
    EXPECT_LT((gradients[1] - gradients[0]).norm().item<double>(), 1e-5 * norm);
  }
}

TEST_P(CompileTest, AskingForTheAttentionKernelSetsNone) {
  const ops::SdpBackends before = ops::allowed_sdp_backends(), only_flash{.flash = true};
  ops::allow_sdp_backends(only_flash);
  for (const auto kernel : {AttentionKernel::automatic, AttentionKernel::math}) {
    ExecutionConfig execution;
    execution.attention = kernel;
    (void)attention_path(small_model(), execution, device(), at::kFloat, /*training=*/true);
    EXPECT_TRUE(ops::allowed_sdp_backends() == only_flash);
  }
  ops::allow_sdp_backends(before);
}

INSTANTIATE_ON_DEVICES(CompileTest);

std::string mode_of(const TrainingConfig& training, at::Device device) {
  const EffectiveMode is = effective_mode(training, small_model(), device);
  return std::string(name_of(is.mode)) + (is.records ? "+graphs" : "") + (is.tunes ? "+tuning" : "") +
         (is.difference.empty() ? "" : ": " + is.difference);
}

TEST(EffectiveMode, TheAutomaticOneDoesAllThatAGpuCanOrNothing) {
  const at::Device gpu(at::kCUDA, 0);
  TrainingConfig training;
  EXPECT_EQ(mode_of(training, gpu), "max-autotune+graphs+tuning");
  EXPECT_EQ(mode_of(training, at::kCPU), "default") << "nobody asked for more";
  training.execution.deterministic = true;
  EXPECT_TRUE(mode_of(training, gpu).starts_with("default: is default with deterministic: true"));
  training.execution.deterministic = false;
  training.quantized.type = QuantizedForward::int8;
  EXPECT_TRUE(mode_of(training, gpu).starts_with("default: is default with quantized_forward"));
  training.quantized.type = QuantizedForward::none;
  training.optimizer.fused_adamw = false;
  EXPECT_TRUE(mode_of(training, gpu).starts_with("default: is default with fused_adamw: false"));
  training.execution.use_compile = false;
  EXPECT_EQ(mode_of(training, gpu), "default") << "use_compile itself was asked for";
}

// Our masks follow from what a recorded step reads each time. Attention on a GPU is LibTorch's, whose random numbers would have to be put
// back where it is computed again, and so is a normalization of very long rows.
TEST(EffectiveMode, DropoutIsInTheWayOfGraphsOnlyWhereWhatIsComputedAgainDrawsFromTheGenerator) {
  using enum GradientCheckpointing;
  const at::Device gpu(at::kCUDA, 0);
  ModelConfig model = small_model();
  TrainingConfig training;
  const auto obstacle = [&](GradientCheckpointing level, double dropout) {
    training.execution.gradient_checkpointing = level, model.dropout = dropout;
    return recording_obstacle(training, model, gpu);
  };
  for (const GradientCheckpointing level : {none, activation, norm, selective}) EXPECT_EQ(obstacle(level, 0.1), "");
  EXPECT_TRUE(obstacle(block, 0.1).starts_with("with gradient_checkpointing: block and dropout"));
  EXPECT_EQ(obstacle(block, 0), "");
  model.n_embd = 8200;
  EXPECT_NE(obstacle(selective, 0.1), "");
  EXPECT_EQ(obstacle(norm, 0.1), "");
}

TEST(EffectiveMode, MaxAutotuneOnAGpuNeedsNoGraphs) {
  const at::Device gpu(at::kCUDA, 0);
  TrainingConfig training;
  training.execution.compile_mode = CompileMode::max_autotune;
  EXPECT_EQ(mode_of(training, gpu), "max-autotune+graphs+tuning");
  EXPECT_EQ(mode_of(training, at::kCPU), "default: is default on a CPU, which has no graphs");
  training.execution.deterministic = true;
  EXPECT_EQ(mode_of(training, gpu),
            "reduce-overhead+graphs: is reduce-overhead with deterministic: true, because what is measured "
            "differs between runs");
  training.quantized.type = QuantizedForward::int8;
  EXPECT_TRUE(mode_of(training, gpu).starts_with("default: is default with quantized_forward"));
  training.quantized.type = QuantizedForward::none;
  training.optimizer.fused_adamw = false;
  EXPECT_TRUE(mode_of(training, gpu).starts_with("default: is default with fused_adamw: false"));
  training.execution.deterministic = false;
  EXPECT_TRUE(mode_of(training, gpu).starts_with("max-autotune+tuning: records no graphs with fused_adamw: false"));
  training.execution.use_compile = false;
  EXPECT_EQ(mode_of(training, gpu), "default: is default without use_compile");
}

TEST(AttentionKernelTest, AKernelThatTheDeviceLacksIsRefused) {
  ExecutionConfig execution;
  for (const auto kernel : {AttentionKernel::cudnn, AttentionKernel::efficient}) {
    execution.attention = kernel;
    EXPECT_THROW((void)select_operators(execution, at::kCPU), Error);
  }
  execution.attention = AttentionKernel::math;
  EXPECT_TRUE(attention_path(small_model(), execution, at::kCPU, at::kFloat, true).starts_with("math: "));
  EXPECT_NE(select_operators(execution, at::kCPU), ops::fused_operators());
  execution = {};
  for (const bool training : {false, true}) {
    EXPECT_EQ(attention_path(small_model(), execution, at::kCPU, at::kFloat, training), "flash");
    EXPECT_EQ(attention_path(small_model(), execution, at::kCPU, at::kBFloat16, training), "flash");
  }
  (void)select_operators(execution, at::kCPU);  // allows every kernel again
}

TEST(AttentionKernelTest, ATensFlashAttentionOnACpuHasNoDropout) {
  ExecutionConfig execution;
  execution.use_compile = false;
  ModelConfig model = small_model();
  model.dropout = 0.1;
  EXPECT_EQ(attention_path(model, execution, at::kCPU, at::kFloat, false), "flash");
  EXPECT_TRUE(attention_path(model, execution, at::kCPU, at::kFloat, true).starts_with("math: "));
  execution.attention = AttentionKernel::flash;
  EXPECT_THROW((void)attention_path(model, execution, at::kCPU, at::kFloat, true), Error);
}

}  // namespace
}  // namespace gpt::model
