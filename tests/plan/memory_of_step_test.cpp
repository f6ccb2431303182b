// The estimate of a step's memory beside what it takes, in forms that keep more or less.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "gpt/core/format.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/precision.h"
#include "gpt/model/compile.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/optim/adamw.h"
#include "gpt/plan/estimates.h"
#include "gpt/products/product.h"
#include "gpt/run/quantized_forward.h"
#include "support/long_test.h"

namespace gpt::plan {
namespace {

// As run::Teacher makes it.
model::GPT teacher_of(const ModelConfig& config, const parameters::ParameterTypes& types) {
  std::vector<layout::ParameterRow> rows = layout::parameter_table(config);
  for (layout::ParameterRow& row : rows) row.is_trained = false;
  parameters::Parameters parameters(std::move(rows), at::kCPU, types);
  parameters.draw(2);
  return {config, std::move(parameters), ops::fused_operators()};
}

ops::Distillation lesson(const model::GPT* teacher, const at::Tensor& ids) {
  if (!teacher) return {};
  const at::NoGradGuard no_gradients;
  return {teacher->hidden(ids),
          teacher->parameters().weight(layout::ParameterRole::token_embedding, -1).compute_value(), 0.5, 2};
}

// Bytes of large tensors at the peak of the second update, when the gradients of the first are there.
device::CpuMemory measured(const ModelConfig& config, const TrainingConfig& training, at::ScalarType compute_type,
                           bool end_to_end) {
  device::use_cpu_allocator();
  const int64_t before = device::cpu_memory().in_use;
  model::GPT model(config, at::kCPU, 1,
                   {.compute = end_to_end ? compute_type : at::kFloat,
                    .has_master = training.precision.master_weights,
                    .gradient = device::gradient_type(training, end_to_end)});
  std::optional<model::GPT> teacher;
  if (training.distillation.teacher) {
    teacher.emplace(teacher_of(*training.distillation.teacher, {.compute = end_to_end ? compute_type : at::kFloat,
                                                                .has_master = training.precision.master_weights}));
    teacher->set_operators(model::select_operators(training.execution, at::kCPU));
  }
  model.train(true);
  model.set_gradient_checkpointing(training.execution.gradient_checkpointing);
  model.set_operators(model::select_operators(training.execution, at::kCPU));
  model.set_training_operators(run::quantized_operators(config, training.quantized, model.operators()));
  optim::AdamW optimizer(model.parameters(), training.optimizer);
  const at::Tensor ids = at::zeros({training.batch_size, config.block_size}, at::kLong);
  const at::Tensor rate = at::full({}, 1e-3), scale = at::ones({}), none = at::zeros({});
  for (int update = 0; update < 2; ++update) {
    device::reset_cpu_memory_peak();
    for (int64_t i = 0; i < training.gradient_accumulation_steps; ++i) {
      at::Tensor loss;
      {
        const device::Autocast autocast(at::kCPU, end_to_end ? at::kFloat : compute_type);
        loss = model.loss(ids, ids,
                          {.label_smoothing = training.label_smoothing,
                           .chunk_rows = training.execution.loss_chunk_rows,
                           .teacher = lesson(teacher ? &*teacher : nullptr, ids)});
      }
      loss.backward();
    }
    optimizer.step({rate, scale, scale, none});
    model.parameters().clear_gradients();
  }
  device::CpuMemory memory = device::cpu_memory();
  memory.peak -= before;
  return memory;
}

struct Form {
  std::string name;
  bool is_llama = false;
  double dropout = 0;
  int64_t vocab_size = 64;
  at::ScalarType compute_type = at::kFloat;
  GradientCheckpointing checkpointing = GradientCheckpointing::none;
  int64_t accumulation = 1, batch_size = 8, n_layer = 6;
  double label_smoothing = 0;
  int64_t n_kv_head = 4, block_size = 128, window = 0;
  bool tie_weights = true, compile = true;
  QkNorm qk_norm = QkNorm::none;
  NormPlace norm_place = NormPlace::input;
  int64_t chunk_rows = 0;
  bool end_to_end = false;
  StateDtype state_dtype = StateDtype::float32;
  bool is_alone = false;  // weights and gradients of 16 bits only
  int64_t teacher_width = 0;
  int64_t top_blocks = 0;
  QuantizedForward quantized = QuantizedForward::none;
  QuantizedProducts quantized_products = QuantizedProducts::forward;
  std::optional<Mlp> mlp = std::nullopt;
  bool is_long = false;  // a CPU without bfloat16 computes it for seconds, and it differs from others in one setting
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class MemoryOf : public testing::TestWithParam<Form> {};

// Never less than what a step takes, and at most an eleventh more, beside what a product may take: another one may be computed at the
// peak.
TEST_P(MemoryOf, IsWhatAStepAllocates) {
  const Form& form = GetParam();
  if (form.is_long) SKIP_UNLESS_ALL_TESTS();
  ModelConfig model;
  model.n_layer = form.n_layer, model.n_head = 4, model.n_kv_head = form.n_kv_head, model.n_embd = 128,
  model.block_size = form.block_size;
  if (!form.is_llama) model.norm = Norm::layernorm, model.mlp = Mlp::gelu, model.position = Position::learned;
  model.dropout = form.dropout, model.vocab_size = form.vocab_size, model.tie_weights = form.tie_weights;
  model.attention_window = form.window, model.qk_norm = form.qk_norm;
  model.norm_place = form.norm_place;
  model.mlp = form.mlp.value_or(model.mlp);
  if (form.top_blocks > 0) model.attention = AttentionForm::blocks, model.attention_top_blocks = form.top_blocks;
  TrainingConfig training;
  training.batch_size = form.batch_size, training.gradient_accumulation_steps = form.accumulation;
  training.execution.gradient_checkpointing = form.checkpointing, training.label_smoothing = form.label_smoothing;
  training.execution.use_compile = form.compile, training.execution.loss_chunk_rows = form.chunk_rows;
  if (form.teacher_width > 0) {
    ModelConfig teacher = model;
    teacher.n_embd = form.teacher_width, teacher.tie_weights = true, teacher.dropout = 0, teacher.block_size *= 2;
    training.distillation.teacher = std::make_shared<const ModelConfig>(teacher);
  }
  training.optimizer.state_dtype = form.state_dtype;
  training.quantized = {.type = form.quantized, .products = form.quantized_products};
  training.precision.master_weights = !form.is_alone;
  training.precision.gradient_dtype = form.is_alone ? GradientDtype::bfloat16 : GradientDtype::float32;
  const bool has_flash = form.compile || form.dropout == 0;
  const double product_workspace = ops::cpu::product_workspace(form.compute_type);
  const auto estimate = estimate_memory(model, training,
                                        {.compute_type = form.compute_type,
                                         .fused_attention = has_flash,
                                         .own_operators = form.compile,
                                         .rounds_products = ops::cpu::rounds_products_from_float32(),
                                         .adds_products = ops::cpu::adds_bfloat16_products(),
                                         .product_workspace = product_workspace,
                                         .end_to_end = form.end_to_end});
  const device::CpuMemory memory = measured(model, training, form.compute_type, form.end_to_end);
  if (memory.extent == 0) GTEST_SKIP() << "the allocator that counts is not in use, as under the address sanitizer";
  const double share = estimate.total() / static_cast<double>(memory.peak);
  const std::string parts =
      fmt::format("estimate {:.2f} of {}; weights {}, gradients {}, AdamW {}, activations {}, logits {}, workspace {}",
                  share, format_bytes(static_cast<double>(memory.peak)), format_bytes(estimate.weights),
                  format_bytes(estimate.gradients), format_bytes(estimate.optimizer),
                  format_bytes(estimate.activations), format_bytes(estimate.logits), format_bytes(estimate.workspace));
  EXPECT_GE(share, 1) << parts;
  EXPECT_LE(share - product_workspace / static_cast<double>(memory.peak), 1.09) << parts;
}

constexpr auto kBf16 = at::kBFloat16;
constexpr auto kBlock = GradientCheckpointing::block;
INSTANTIATE_TEST_SUITE_P(
    Forms, MemoryOf,
    testing::Values(
        Form{.name = "gpt2"}, Form{.name = "gpt2_int8", .quantized = QuantizedForward::int8},
        Form{.name = "gpt2_int8_end_to_end",
             .compute_type = kBf16,
             .end_to_end = true,
             .quantized = QuantizedForward::int8},
        Form{.name = "llama_int8_all",
             .is_llama = true,
             .batch_size = 2,
             .quantized = QuantizedForward::int8,
             .quantized_products = QuantizedProducts::all},
        Form{.name = "gpt2_int8_all_end_to_end",
             .compute_type = kBf16,
             .end_to_end = true,
             .quantized = QuantizedForward::int8,
             .quantized_products = QuantizedProducts::all},
        Form{.name = "gpt2_state_in_8_bits", .vocab_size = 8192, .batch_size = 1, .state_dtype = StateDtype::int8},
        Form{
            .name = "gpt2_state_in_bfloat16", .vocab_size = 8192, .batch_size = 1, .state_dtype = StateDtype::bfloat16},
        Form{.name = "gpt2_teacher", .vocab_size = 8192, .teacher_width = 256},
        Form{.name = "llama_teacher_of_a_small_one",
             .is_llama = true,
             .n_layer = 1,
             .tie_weights = false,
             .chunk_rows = 64,
             .teacher_width = 1024},
        Form{.name = "gpt2_teacher_chunk", .vocab_size = 8192, .n_layer = 2, .chunk_rows = 1024, .teacher_width = 256},
        Form{.name = "gpt2_teacher_bfloat16",
             .vocab_size = 8192,
             .compute_type = kBf16,
             .teacher_width = 256,
             .is_long = true},
        Form{.name = "gpt2_teacher_end_to_end",
             .vocab_size = 8192,
             .compute_type = kBf16,
             .end_to_end = true,
             .teacher_width = 256},
        Form{.name = "gpt2_teacher_uncompiled", .vocab_size = 2048, .compile = false, .teacher_width = 256},
        Form{.name = "gpt2_vocabulary", .vocab_size = 8192}, Form{.name = "gpt2_dropout", .dropout = 0.1},
        Form{.name = "gpt2_bfloat16", .compute_type = kBf16},
        Form{.name = "gpt2_bfloat16_dropout", .dropout = 0.1, .compute_type = kBf16, .is_long = true},
        Form{.name = "gpt2_end_to_end", .compute_type = kBf16, .end_to_end = true},
        Form{.name = "gpt2_end_to_end_dropout",
             .dropout = 0.1,
             .compute_type = kBf16,
             .end_to_end = true,
             .is_long = true},
        Form{.name = "gpt2_vocabulary_end_to_end",
             .vocab_size = 8192,
             .compute_type = kBf16,
             .end_to_end = true,
             .is_long = true},
        Form{.name = "gpt2_end_to_end_uncompiled", .compute_type = kBf16, .compile = false, .end_to_end = true},
        Form{.name = "llama_end_to_end_uncompiled",
             .is_llama = true,
             .compute_type = kBf16,
             .compile = false,
             .end_to_end = true},
        Form{.name = "llama_selective_end_to_end_uncompiled",
             .is_llama = true,
             .compute_type = kBf16,
             .checkpointing = GradientCheckpointing::selective,
             .compile = false,
             .end_to_end = true},
        Form{.name = "llama_end_to_end", .is_llama = true, .compute_type = kBf16, .end_to_end = true},
        Form{.name = "llama_end_to_end_checkpointing",
             .is_llama = true,
             .compute_type = kBf16,
             .checkpointing = kBlock,
             .end_to_end = true},
        Form{.name = "gpt2_vocabulary_bfloat16", .vocab_size = 8192, .compute_type = kBf16, .is_long = true},
        Form{.name = "gpt2_small_batch", .vocab_size = 8192, .batch_size = 1},
        Form{.name = "gpt2_small_batch_accumulated", .vocab_size = 8192, .accumulation = 2, .batch_size = 1},
        Form{.name = "gpt2_two_layers", .n_layer = 2},
        Form{.name = "gpt2_two_layers_dropout", .dropout = 0.1, .n_layer = 2},
        Form{.name = "gpt2_two_layers_block", .checkpointing = kBlock, .n_layer = 2},
        Form{.name = "llama_two_layers", .is_llama = true, .n_layer = 2},
        Form{.name = "qwen3_two_layers", .is_llama = true, .n_layer = 2, .qk_norm = QkNorm::heads},
        Form{.name = "gemma3", .is_llama = true, .qk_norm = QkNorm::heads, .norm_place = NormPlace::both},
        Form{.name = "gemma3_selective",
             .is_llama = true,
             .checkpointing = GradientCheckpointing::selective,
             .qk_norm = QkNorm::heads,
             .norm_place = NormPlace::both},
        Form{.name = "gemma3_block",
             .is_llama = true,
             .checkpointing = kBlock,
             .qk_norm = QkNorm::heads,
             .norm_place = NormPlace::both},
        Form{.name = "olmo2", .is_llama = true, .qk_norm = QkNorm::all, .norm_place = NormPlace::output},
        Form{.name = "olmo2_norm_again",
             .is_llama = true,
             .checkpointing = GradientCheckpointing::norm,
             .qk_norm = QkNorm::all,
             .norm_place = NormPlace::output},
        Form{.name = "olmo2_selective",
             .is_llama = true,
             .checkpointing = GradientCheckpointing::selective,
             .qk_norm = QkNorm::all,
             .norm_place = NormPlace::output},
        Form{.name = "olmo2_block",
             .is_llama = true,
             .checkpointing = kBlock,
             .qk_norm = QkNorm::all,
             .norm_place = NormPlace::output},
        Form{.name = "olmo2_uncompiled",
             .is_llama = true,
             .n_layer = 2,
             .compile = false,
             .qk_norm = QkNorm::all,
             .norm_place = NormPlace::output},
        Form{.name = "arcee", .is_llama = true, .mlp = Mlp::relu2},
        Form{.name = "arcee_activation_again",
             .is_llama = true,
             .checkpointing = GradientCheckpointing::activation,
             .mlp = Mlp::relu2},
        Form{.name = "arcee_uncompiled_dropout",
             .is_llama = true,
             .dropout = 0.1,
             .n_layer = 2,
             .compile = false,
             .mlp = Mlp::relu2},
        Form{.name = "llama_two_layers_dropout", .is_llama = true, .dropout = 0.1, .n_layer = 2},
        Form{.name = "llama_two_layers_block", .is_llama = true, .checkpointing = kBlock, .n_layer = 2},
        Form{.name = "llama_two_layers_selective",
             .is_llama = true,
             .checkpointing = GradientCheckpointing::selective,
             .n_layer = 2},
        Form{.name = "llama_two_layers_norm_again",
             .is_llama = true,
             .checkpointing = GradientCheckpointing::norm,
             .n_layer = 2},
        Form{.name = "llama_two_layers_uncompiled", .is_llama = true, .n_layer = 2, .compile = false},
        Form{.name = "gpt2_two_layers_uncompiled", .n_layer = 2, .compile = false},
        Form{.name = "gpt2_vocabulary_smoothing_uncompiled",
             .vocab_size = 8192,
             .n_layer = 2,
             .label_smoothing = 0.1,
             .compile = false},
        Form{.name = "gpt2_vocabulary_end_to_end_uncompiled",
             .vocab_size = 8192,
             .compute_type = kBf16,
             .n_layer = 2,
             .compile = false,
             .end_to_end = true},
        Form{.name = "gpt2_vocabulary_bfloat16_uncompiled",
             .vocab_size = 8192,
             .compute_type = kBf16,
             .n_layer = 2,
             .compile = false,
             .is_long = true},
        Form{.name = "gpt2_sixteen_bits_alone", .compute_type = kBf16, .end_to_end = true, .is_alone = true},
        Form{.name = "llama_sixteen_bits_alone_large",
             .is_llama = true,
             .vocab_size = 8192,
             .compute_type = kBf16,
             .batch_size = 1,
             .end_to_end = true,
             .state_dtype = StateDtype::int8,
             .is_alone = true},
        Form{.name = "llama", .is_llama = true}, Form{.name = "llama_dropout", .is_llama = true, .dropout = 0.1},
        Form{.name = "llama_bfloat16", .is_llama = true, .compute_type = kBf16},
        Form{
            .name = "llama_bfloat16_dropout", .is_llama = true, .dropout = 0.1, .compute_type = kBf16, .is_long = true},
        Form{.name = "llama_checkpointing", .is_llama = true, .checkpointing = kBlock},
        Form{.name = "llama_checkpointing_dropout", .is_llama = true, .dropout = 0.1, .checkpointing = kBlock},
        Form{.name = "llama_selective", .is_llama = true, .checkpointing = GradientCheckpointing::selective},
        Form{.name = "llama_norm_again", .is_llama = true, .checkpointing = GradientCheckpointing::norm},
        Form{.name = "llama_activation_again", .is_llama = true, .checkpointing = GradientCheckpointing::activation},
        Form{.name = "gpt2_selective_dropout", .dropout = 0.1, .checkpointing = GradientCheckpointing::selective},
        Form{.name = "gpt2_norm_again", .checkpointing = GradientCheckpointing::norm},
        Form{.name = "gpt2_activation_again", .checkpointing = GradientCheckpointing::activation},
        Form{.name = "gpt2_norm_again_bfloat16",
             .compute_type = kBf16,
             .checkpointing = GradientCheckpointing::norm,
             .is_long = true},
        Form{.name = "gpt2_norm_again_end_to_end",
             .compute_type = kBf16,
             .checkpointing = GradientCheckpointing::norm,
             .end_to_end = true},
        Form{.name = "gpt2_selective_uncompiled", .checkpointing = GradientCheckpointing::selective, .compile = false},
        Form{.name = "llama_accumulated", .is_llama = true, .accumulation = 2},
        Form{.name = "llama_deep", .is_llama = true, .batch_size = 2, .n_layer = 24},
        Form{.name = "llama_small_batch_bfloat16", .is_llama = true, .compute_type = kBf16, .batch_size = 1},
        Form{.name = "llama_smoothing", .is_llama = true, .vocab_size = 8192, .label_smoothing = 0.1},
        Form{.name = "llama_grouped", .is_llama = true, .n_kv_head = 2},
        Form{.name = "llama_grouped_dropout", .is_llama = true, .dropout = 0.1, .n_kv_head = 2},
        Form{.name = "gpt2_vocabulary_chunks", .vocab_size = 8192, .chunk_rows = 64},
        Form{.name = "gpt2_uncompiled", .dropout = 0.1, .compile = false},
        Form{.name = "gpt2_vocabulary_uncompiled", .vocab_size = 8192, .compile = false},
        Form{.name = "llama_uncompiled", .is_llama = true, .compile = false},
        Form{.name = "llama_windows", .is_llama = true, .window = 32},
        Form{.name = "llama_windows_uncompiled",
             .is_llama = true,
             .batch_size = 1,
             .block_size = 1024,
             .window = 32,
             .compile = false},
        Form{.name = "llama_windows_block_uncompiled",
             .is_llama = true,
             .checkpointing = kBlock,
             .batch_size = 1,
             .block_size = 1024,
             .window = 32,
             .compile = false},
        Form{.name = "llama_blocks", .is_llama = true, .batch_size = 2, .block_size = 512, .top_blocks = 4},
        Form{.name = "llama_blocks_uncompiled",
             .is_llama = true,
             .batch_size = 2,
             .block_size = 512,
             .compile = false,
             .top_blocks = 4},
        Form{.name = "llama_bfloat16_uncompiled",
             .is_llama = true,
             .compute_type = kBf16,
             .compile = false,
             .is_long = true},
        Form{.name = "llama_untied", .is_llama = true, .vocab_size = 8192, .batch_size = 2, .tie_weights = false}),
    [](const auto& info) { return info.param.name; });

// The estimate and the measurement have the same parts. Weights, gradients and state are known exactly.

}  // namespace
}  // namespace gpt::plan
