#include "gpt/plan/quantized_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpt/core/format.h"
#include "gpt/products/eight_bit_product.h"
#include "gpt/run/quantized_forward.h"

namespace gpt::plan {
namespace {

std::string describe_blocks(const ModelConfig& model, const QuantizedConfig& config) {
  const auto [begin, end] = run::quantized_blocks(model, config);
  return fmt::format("{} in {} of {} ({} to {})", run::name_of(config.type), end - begin,
                     plural(model.n_layer, "block"), begin, end - 1);
}

}  // namespace

Check check_quantized_forward(const Config& config, const DeviceInfo& device, const Precision& precision,
                              bool is_here) {
  constexpr const char* kName = "quantized forward";
  const QuantizedConfig& quantized = config.training.quantized;
  if (std::string why = run::quantization_obstacle(quantized, device); !why.empty())
    return failed(kName, std::move(why), "set training.quantized_forward: none");
  const std::string blocks = describe_blocks(config.model, quantized);
  if (!is_here) return passed(kName, blocks + "; how fast that is on another device is not known here");
  const auto [usual, own] =
      run::measure_quantized_forward(config.model, config.training, device.device, precision.compute_type());
  const std::string detail =
      fmt::format("{}: {} reach {}/s, where {} reaches {}/s", blocks,
                  quantized.has_all() ? "the products of both passes" : "products of the forward pass",
                  format_flops(own), gpt::name_of(precision.compute_type()), format_flops(usual));
  Check check =
      own > usual ? passed(kName, detail)
      : quantized.force
          ? warned(kName, detail + ": nothing is gained", "set training.quantized_forward: none")
          : failed(kName, detail + ": nothing is gained",
                   "set training.quantized_forward: none, or quantized_forward_force: true to compute so all the same");
  check.values = {{"quantized_flops_per_second", own}, {"usual_flops_per_second", usual}};
  return check;
}

double quantized_weight_bytes(const ModelConfig& model, const QuantizedConfig& config,
                              const std::vector<ParameterRow>& rows) {
  if (!config.is_on()) return 0;
  const auto [begin, end] = run::quantized_blocks(model, config);
  int64_t bytes = 0;
  for (const ParameterRow& row : rows) {
    if (row.shape.size() != 2 || row.layer < begin || row.layer >= end) continue;
    bytes += ops::second_factor_bytes(row.shape[0], row.shape[1]);
    if (config.has_all()) bytes += ops::second_factor_bytes(row.shape[1], row.shape[0]);
  }
  return static_cast<double>(bytes);
}

double quantized_product_bytes(const ModelConfig& model, const QuantizedConfig& config, double tokens,
                               double value_bytes, bool cuda) {
  if (!config.is_on()) return 0;
  const int64_t qkv = model.attention_width() + 2 * model.kv_heads() * model.head_dim();
  const auto widest = static_cast<double>(std::max({model.hidden(), model.attention_width(), model.n_embd})),
             widest_result = static_cast<double>(std::max({model.hidden(), qkv, model.n_embd}));
  // LibTorch's operators: the values in float32 and their quotients; the sums in int32, and in float32.
  constexpr double kFloats = 2 * sizeof(float);
  const double forward = tokens * (cuda ? std::max(widest * (1 + kFloats), widest + widest_result * kFloats) : widest);
  if (!config.has_all()) return forward;
  // Of a weight's gradient the codes of both factors, and beside them the values of one, which lie by rows at first.
  const double of_value = cuda ? kFloats : value_bytes;
  return std::max(forward, tokens * (widest + widest_result + of_value * std::max(widest, widest_result)));
}

}  // namespace gpt::plan
