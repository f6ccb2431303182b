#include "gpt/plan/quantized_check.h"

#include <fmt/format.h>

#include <utility>

#include "gpt/core/format.h"
#include "gpt/run/quantized_forward.h"

namespace gpt::plan {
namespace {

std::string describe_blocks(const ModelConfig& model, const QuantizedConfig& config) {
  const auto [begin, end] = run::quantized_blocks(model, config);
  return fmt::format("{} in {} of {} ({} to {})", run::name_of(config.type), end - begin,
                     plural(model.n_layer, "block"), begin, end - 1);
}

}  // namespace

Check check_quantized_forward(const UpdateConfig& config, const device::DeviceInfo& device,
                              const device::Precision& precision, bool is_here) {
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
                  format_flops(own), device::name_of(precision.compute_type()), format_flops(usual));
  Check check =
      own > usual ? passed(kName, detail)
      : quantized.force
          ? warned(kName, detail + ": nothing is gained", "set training.quantized_forward: none")
          : failed(kName, detail + ": nothing is gained",
                   "set training.quantized_forward: none, or quantized_forward_force: true to compute so all the same");
  check.values = {{"quantized_flops_per_second", own}, {"usual_flops_per_second", usual}};
  return check;
}

}  // namespace gpt::plan
