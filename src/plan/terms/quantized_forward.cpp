// Products of 8 bits in the blocks: training.quantized_forward.
#include "gpt/run/quantized_forward.h"

#include "gpt/products/eight_bit_product.h"
#include "terms.h"

namespace gpt::plan::terms {
namespace {

double quantized_weight_bytes(const RunPart& run) {
  const QuantizedConfig& config = run.training.quantized;
  const auto [begin, end] = run::quantized_blocks(run.whole, config);
  int64_t bytes = 0;
  for (const layout::ParameterRow& row : run.rows) {
    if (row.shape.size() != 2 || row.layer < begin || row.layer >= end) continue;
    bytes += ops::second_factor_bytes(row.shape[0], row.shape[1]);
    if (config.has_all()) bytes += ops::second_factor_bytes(row.shape[1], row.shape[0]);
  }
  return static_cast<double>(bytes);
}

// Bytes that the largest product takes while it is computed.
double quantized_product_bytes(const RunPart& run) {
  const ModelConfig& model = run.model;
  const bool cuda = run.form.cuda;
  const int64_t qkv = model.attention_width() + 2 * model.kv_heads() * model.head_dim();
  const auto widest = static_cast<double>(std::max({model.hidden(), model.attention_width(), model.n_embd})),
             widest_result = static_cast<double>(std::max({model.hidden(), qkv, model.n_embd}));
  // LibTorch's operators: the values in float32 and their quotients; the sums in int32, and in float32.
  constexpr double kFloats = 2 * sizeof(float);
  const double forward = cuda ? std::max(widest * (1 + kFloats), widest + widest_result * kFloats) : widest;
  if (!run.training.quantized.has_all()) return run.tokens * forward;
  // A weight's gradient takes the codes of both factors, and beside them the values of one, which lie by rows at first.
  const double of_value = cuda ? kFloats : bytes_of(run.form.compute_type);
  return run.tokens * std::max(forward, widest + widest_result + of_value * std::max(widest, widest_result));
}

void add_quantized(const RunPart& run, MemoryTerms& sum) {
  if (!run.training.quantized.is_on()) return;
  sum.use.weights += quantized_weight_bytes(run);
  sum.at_product(quantized_product_bytes(run));
}

}  // namespace

Term quantized_forward() { return {.memory = add_quantized}; }

}  // namespace gpt::plan::terms
