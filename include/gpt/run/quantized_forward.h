// training.quantized_forward: blocks whose products are computed in 8 bits while training.
#pragma once

#include <cstdint>
#include <string>

#include "gpt/config/config.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/layout/stages.h"
#include "gpt/ops/operators.h"

namespace gpt::run {

const char* name_of(QuantizedForward type);  // as the key's value

// The blocks that it is for, of the whole model.
layout::LayerSpan quantized_blocks(const ModelConfig& model, const QuantizedConfig& config);

// Why the device cannot do it: "fp8 needs a GPU ..."; empty where it can, or is not asked to.
std::string quantization_obstacle(const QuantizedConfig& config, const device::DeviceInfo& device);
// Throws gpt::Error(config) with it.
void require_quantized_forward(const TrainingConfig& training, const device::DeviceInfo& device);

// What the model computes with in training mode; null where nothing is quantized.
ops::SharedOperators quantized_operators(const ModelConfig& model, const QuantizedConfig& config,
                                         ops::SharedOperators inner);

// FLOP/s of a block's products in the forward pass or, with quantized_products: all, in both, as they are and quantized: with as many rows
// as a micro-batch has, or fewer, and with a weight's rounding once per update. The best of a few alternating runs, which take about half a
// second.
struct QuantizedSpeed {
  double usual = 0, quantized = 0;
};
QuantizedSpeed measure_quantized_forward(const ModelConfig& model, const TrainingConfig& training, at::Device device,
                                         at::ScalarType type);

}  // namespace gpt::run
