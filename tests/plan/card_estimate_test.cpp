#include "gpt/plan/card_estimate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "gpt/layout/parameter_table.h"
#include "plan/gpt2.h"
#include "support/expect_error.h"
#include "support/source_folder.h"

namespace gpt::plan {
namespace {

constexpr ActivationForm kBfloat16{.compute_type = at::kBFloat16, .cuda = true, .end_to_end = true};

StepEstimate step(const char* card, const ModelConfig& model, const TrainingConfig& training,
                  const ActivationForm& form = kBfloat16, Dtype dtype = Dtype::bfloat16) {
  return estimate_step(model, training, form, *device::find_card(card), dtype);
}

double tokens_per_second(const char* card, const ModelConfig& model, int64_t batch_size) {
  TrainingConfig training;
  training.batch_size = batch_size;
  return static_cast<double>(batch_size * model.block_size) / step(card, model, training).total();
}

// What gpt-bench measured with compile_mode auto, in milliseconds; two cards of the same kind differed by 7 %.
TEST(EstimateStep, IsWhatWasMeasured) {
  const auto milliseconds = [](const char* card, const ModelConfig& model, int64_t batch_size, bool has_own = true) {
    TrainingConfig training;
    training.batch_size = batch_size;
    ActivationForm form = kBfloat16;
    form.is_recorded = form.own_operators = has_own;
    return 1000 * step(card, model, training, form).total();
  };
  constexpr double kNear = 0.1;
  const auto expect = [](double estimated, double measured) {
    EXPECT_NEAR(estimated / measured, 1, kNear) << measured;
  };
  const ModelConfig small = gpt2(12, 12, 768);
  expect(milliseconds("H100 SXM", small, 64), 116.3);
  expect(milliseconds("H100 SXM", small, 64, /*has_own=*/false), 189.8);
  expect(milliseconds("H200", small, 64), 110.9);
  expect(milliseconds("H200", gpt2(24, 16, 1024), 16), 76.2);
  expect(milliseconds("H200", gpt2(36, 20, 1280), 8), 85.7);
  expect(milliseconds("H200", gpt2(48, 25, 1600), 4), 92.1);
  ModelConfig characters;  // configs/shakespeare_char_gpu.yaml
  characters.vocab_size = 84;
  expect(milliseconds("H100 SXM", characters, 64), 4.50);
  expect(milliseconds("H200", characters, 64), 3.94);
  expect(milliseconds("H200", characters, 256), 13.65);
}

// A run of tests/figures/gpu.json, as "GPT-2 124M, 64 x 1,024": the model, and the sequences of a batch.
std::pair<ModelConfig, int64_t> recorded_run(const std::string& name) {
  const int64_t batch_size = std::stoll(name.substr(name.find(',') + 2));
  for (const auto& [size, model] : {std::pair{"124M", gpt2(12, 12, 768)}, std::pair{"350M", gpt2(24, 16, 1024)},
                                    std::pair{"774M", gpt2(36, 20, 1280)}, std::pair{"1558M", gpt2(48, 25, 1600)}})
    if (name.find(size) != std::string::npos) return {model, batch_size};
  ModelConfig characters;  // configs/shakespeare_char_gpu.yaml
  characters.vocab_size = 84, characters.dropout = 0;
  return {characters, batch_size};
}

// The tensors' peak, of every run that was recorded on a card.
TEST(EstimateMemory, IsWhatWasMeasuredOnCards) {
  std::ifstream file(test::source_folder() + "/tests/figures/gpu.json");
  const nlohmann::json figures = nlohmann::json::parse(file);
  int runs = 0;
  for (const nlohmann::json& measured : figures["measurements"]) {
    const bool is_h200 = measured["label"].get<std::string>().find("H200") != std::string::npos;
    const device::DeviceInfo card = device::find_card(is_h200 ? "H200" : "H100 SXM")->describe();
    for (const nlohmann::json& row : measured["rows"]) {
      const auto [model, batch_size] = recorded_run(row[0]);
      TrainingConfig training;
      training.batch_size = batch_size;
      training.execution.use_compile = row[1] != "`use_compile: false`";
      if (row[1] == "default") training.execution.compile_mode = CompileMode::standard;
      const device::Precision precision = device::resolve_precision(training.precision, card);
      const ActivationForm form = activation_form(model, training, {}, card, precision, "flash");
      const double share = row[4].get<double>() * 1e9 / estimate_memory(model, training, form).total();
      EXPECT_GT(share, 0.9) << row;
      EXPECT_LT(share, 1.05) << row;
      ++runs;
    }
  }
  EXPECT_EQ(runs, 17);
}

// Published speeds of one of eight GPUs at sequences of 1,024.
TEST(EstimateStep, LiesAmongPublishedSpeeds) {
  const ModelConfig small = gpt2(12, 12, 768);
  EXPECT_GT(tokens_per_second("A100 40GB", small, 12), 107e3) << "nanoGPT with torch.compile";
  EXPECT_LT(tokens_per_second("A100 80GB", small, 64), 218e3) << "llm.c";
  EXPECT_GT(tokens_per_second("H100 SXM", gpt2(48, 25, 1600), 16), 0.75 * 46.8e3) << "llm.c";
}

TEST(EstimateStep, FollowsTheCardAndTheRun) {
  const ModelConfig model = gpt2(12, 12, 768);
  TrainingConfig training;
  training.batch_size = 16;
  const StepEstimate one = step("RTX 4090", model, training);
  EXPECT_NEAR(step("RTX 4080 SUPER", model, training).products / one.products, 165.2 / 104.4, 1e-9);
  EXPECT_NEAR(step("RTX 4080 SUPER", model, training).memory / one.memory, 1008.0 / 736, 1e-9);

  TrainingConfig checkpointing = training;
  checkpointing.execution.gradient_checkpointing = GradientCheckpointing::block;
  EXPECT_NEAR(step("RTX 4090", model, checkpointing).products / one.products, 1 + 8.0 / 36, 1e-9)
      << "all forward products of a block but its last one, of which GPT-2 has four of twelve parts";

  TrainingConfig offloading = training;
  offloading.optimizer.offload = 1;
  const double moments = 8.0 * static_cast<double>(layout::parameter_count(model));
  EXPECT_NEAR(step("RTX 4090", model, offloading).memory - one.memory, moments * (1 / 25e9 - 2 / (0.85 * 1008e9)),
              1e-3 * one.memory)
      << "over the bus, both ways at once, instead of read and written on the card";

  TrainingConfig swapping = training;
  swapping.execution.swap_activations = 10;
  const StepEstimate swapped = step("RTX 4090", model, swapping);
  EXPECT_EQ(swapped.products, one.products);
  EXPECT_EQ(swapped.memory, one.memory);
  EXPECT_GT(swapped.swapping, 0);
  swapping.execution.swap_activations = 5;
  EXPECT_NEAR(step("RTX 4090", model, swapping).swapping, swapped.swapping / 2, 1e-9) << "out, and in again";

  TrainingConfig accumulating = training;
  accumulating.gradient_accumulation_steps = 4;
  const StepEstimate four = step("RTX 4090", model, accumulating);
  EXPECT_NEAR(four.products / one.products, 4, 1e-9);
  EXPECT_LT(four.memory, 4 * one.memory) << "there is one update";

  const ActivationForm float32{.cuda = true};
  EXPECT_NEAR(step("RTX 4090", model, training, float32, Dtype::float32).products / one.products, 2, 1e-2);
}

TEST(EstimateParts, MakeUpTheStep) {
  const ModelConfig model = gpt2(12, 12, 768);
  TrainingConfig training;
  training.batch_size = 16;
  const device::Card& card = *device::find_card("H100 SXM");
  for (const int64_t micro_batches : {1, 2, 5}) {
    training.gradient_accumulation_steps = micro_batches;
    const StepParts parts = estimate_parts(model, training, kBfloat16, card, Dtype::bfloat16);
    EXPECT_NEAR(static_cast<double>(micro_batches) * parts.micro_batch + parts.update,
                step("H100 SXM", model, training).total(), 1e-12);
    EXPECT_GT(parts.update, 0);
    ActivationForm half = kBfloat16;
    half.model_parts = 2;
    EXPECT_DOUBLE_EQ(estimate_parts(model, training, half, card, Dtype::bfloat16).micro_batch, parts.micro_batch / 2);
  }
}

TEST(EstimateStep, ASmallModelWaitsForItsLaunches) {
  TrainingConfig training;
  training.batch_size = 4;
  ModelConfig tiny = gpt2(4, 4, 64);
  tiny.vocab_size = 65;
  const StepEstimate eager = step("H100", tiny, training);
  EXPECT_EQ(eager.total(), eager.launches);
  ActivationForm recorded = kBfloat16;
  recorded.is_recorded = true;
  EXPECT_LT(step("H100", tiny, training, recorded).total(), eager.total());
}

TEST(ExpectedAttention, IsFusedWhereTheCardHasAKernel) {
  ModelConfig model = gpt2(12, 12, 768);
  const device::DeviceInfo t4 = device::find_card("T4")->describe(), l4 = device::find_card("L4")->describe();
  EXPECT_EQ(expected_attention(model, {}, l4, at::kBFloat16), "flash");
  EXPECT_EQ(expected_attention(model, {}, l4, at::kFloat), "efficient");
  EXPECT_EQ(expected_attention(model, {}, t4, at::kHalf), "efficient");
  model.attention_window = 64;
  EXPECT_EQ(expected_attention(model, {}, l4, at::kBFloat16), "flash");
  EXPECT_ERROR(
      (void)expected_attention(model, {}, t4, at::kHalf), ExitCode::config,
      "'model.attention_window' is 64, and on a GPU only flash attention has windows, which does not take Half with "
      "heads of width 64 there; set training.dtype auto, or attention_window 0");
  ExecutionConfig execution;
  execution.attention = AttentionKernel::cudnn;
  EXPECT_ERROR((void)expected_attention(model, execution, l4, at::kBFloat16), ExitCode::config,
               "which 'training.attention' cudnn excludes; set attention auto, or attention_window 0");
  model.attention_window = 0;
  model.block_size = 1024, model.attention = AttentionForm::blocks;
  EXPECT_ERROR((void)expected_attention(model, {}, l4, at::kBFloat16), ExitCode::config,
               "a model with attention in chosen blocks is computed on a CPU alone so far; set --device cpu");
  model.attention = AttentionForm::full;
  model.n_kv_head = 4;
  EXPECT_TRUE(expected_attention(model, {}, t4, at::kHalf).starts_with("math"));
  model.n_head = 64;  // heads of width 12
  EXPECT_TRUE(expected_attention(model, {}, l4, at::kBFloat16).starts_with("math"));
}

TEST(CheckMemory, OfACardThatIsNotHere) {
  const device::DeviceInfo card = device::find_card("RTX 4090")->describe();
  TrainingConfig training;
  training.batch_size = 8;
  const ModelConfig model = gpt2(12, 12, 768);
  const ActivationForm form =
      activation_form(model, training, {}, card, device::resolve_precision(training.precision, card), "flash");
  EXPECT_TRUE(form.cuda && form.end_to_end && form.fused_attention);
  EXPECT_EQ(check_memory(model, training, form, card_memory(card)).status, Check::Status::pass);
  training.batch_size = 512;
  EXPECT_EQ(check_memory(model, training, form, card_memory(card)).status, Check::Status::fail);
}

}  // namespace
}  // namespace gpt::plan
