#include "gpt/run/quantized_forward.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/ops/eight_bit_operators.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/products/eight_bit_product.h"

namespace gpt::run {
namespace {

ops::EightBitType type_of(QuantizedForward type) {
  return type == QuantizedForward::fp8 ? ops::EightBitType::fp8 : ops::EightBitType::int8;
}

// The products of a block, with random values.
class BlockProducts {
 public:
  BlockProducts(const ModelConfig& model, const QuantizedConfig& config, at::Device device, at::ScalarType type,
                int64_t rows)
      : all_(config.has_all()) {
    const auto random = [&](int64_t count, int64_t columns) {
      return at::randn({count, columns}, at::TensorOptions(device).dtype(at::kFloat)).to(type);
    };
    const int64_t C = model.n_embd, A = model.attention_width(), F = model.hidden(),
                  qkv = A + 2 * model.kv_heads() * model.head_dim();
    std::vector<std::pair<int64_t, int64_t>> shapes{{qkv, C}, {C, A}, {F, C}, {C, F}};
    if (model.is_gated()) shapes.emplace_back(F, C);
    for (const auto& [out, in] : shapes) {
      layers_.push_back({parameters::Parameter(random(out, in)), random(rows, in), random(rows, out)});
      flops_ += 2.0 * static_cast<double>(rows * out * in) * (all_ ? 3 : 1);
    }
  }

  double flops() const { return flops_; }

  void compute(const ops::Operators& operators) const {
    for (const auto& [weight, x, gradient] : layers_) {
      const ops::LinearLayer layer{weight, {}, {}};
      const at::AutoGradMode gradients(all_);
      const at::Tensor y = operators.linear(all_ ? x.detach().requires_grad_() : x, layer, ops::ProductInput::keep);
      if (all_) y.backward(gradient);
    }
  }

 private:
  struct Layer {
    parameters::Parameter weight;  // (out, in)
    at::Tensor x, gradient;        // (rows, in), (rows, out)
  };
  const bool all_;
  std::vector<Layer> layers_;
  double flops_ = 0;
};

double seconds_of(at::Device device, const std::function<void()>& work) {
  device::synchronize(device);  // sync: the work is timed
  const auto begin = std::chrono::steady_clock::now();
  work();
  device::synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

const char* name_of(QuantizedForward type) {
  return type == QuantizedForward::int8 ? "int8" : type == QuantizedForward::fp8 ? "fp8" : "none";
}

layout::LayerSpan quantized_blocks(const ModelConfig& model, const QuantizedConfig& config) {
  return {config.skip, model.n_layer - config.skip};
}

std::string quantization_obstacle(const QuantizedConfig& config, const device::DeviceInfo& device) {
  if (!config.is_on()) return "";
  const std::string why = ops::eight_bit_obstacle(type_of(config.type), device);
  return why.empty() ? "" : fmt::format("{} {}", name_of(config.type), why);
}

void require_quantized_forward(const TrainingConfig& training, const device::DeviceInfo& device) {
  if (const std::string why = quantization_obstacle(training.quantized, device); !why.empty())
    throw Error(ExitCode::config, fmt::format("training.quantized_forward: {}; set it to none", why));
}

ops::SharedOperators quantized_operators(const ModelConfig& model, const QuantizedConfig& config,
                                         ops::SharedOperators inner) {
  if (!config.is_on()) return nullptr;
  const auto [begin, end] = quantized_blocks(model, config);
  return ops::eight_bit_operators(std::move(inner), type_of(config.type), config.has_all(), begin, end);
}

QuantizedSpeed measure_quantized_forward(const ModelConfig& model, const TrainingConfig& training, at::Device device,
                                         at::ScalarType type) {
  constexpr int64_t kMostRows = 1024, kMostRowsOfGpu = 16384, kRounds = 3;
  constexpr double kSeconds = 0.5;
  const int64_t tokens = std::max<int64_t>(1, training.batch_size) * training.sequence_length_for(model),
                rows = std::min(tokens, device.is_cpu() ? kMostRows : kMostRowsOfGpu);
  const auto weight_uses =
      static_cast<double>(tokens * training.gradient_accumulation_steps) / static_cast<double>(rows);
  const BlockProducts products(model, training.quantized, device, type, rows);
  const ops::SharedOperators usual = ops::fused_operators(),
                             quantized = ops::eight_bit_operators(usual, type_of(training.quantized.type),
                                                                  training.quantized.has_all(), -1, 0);
  double of_usual = 0, first = 0, later = 0;  // the least so far; `first`: with the weights' rounding
  const auto take = [](double& least, double seconds) { least = least == 0 ? seconds : std::min(least, seconds); };
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kSeconds);
  for (int64_t round = 0; round <= kRounds || std::chrono::steady_clock::now() < end; ++round) {
    const double a = seconds_of(device, [&] { products.compute(*usual); });
    quantized->values_changed();
    const double b = seconds_of(device, [&] { products.compute(*quantized); }),
                 c = seconds_of(device, [&] { products.compute(*quantized); });
    if (round == 0) continue;  // memory is touched, kernels are chosen
    take(of_usual, a), take(first, b), take(later, c);
  }
  const double of_weights = std::max(0.0, first - later) / weight_uses;
  return {.usual = products.flops() / of_usual, .quantized = products.flops() / (later + of_weights)};
}

}  // namespace gpt::run
