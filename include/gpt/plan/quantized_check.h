// What training.quantized_forward gains here, and what it takes.
#pragma once

#include <vector>

#include "gpt/config/config.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/plan/check.h"

namespace gpt::plan {

// Measured on the device, unless that is another one than here. Fails where nothing is gained, unless that is forced, and where device or
// precision cannot do it.
Check check_quantized_forward(const Config& config, const DeviceInfo& device, const Precision& precision, bool is_here);

// Bytes of the weights in 8 bits among these rows; and of what is there beside a product of so many tokens, whose values have so many bytes.
double quantized_weight_bytes(const ModelConfig& model, const QuantizedConfig& config,
                              const std::vector<ParameterRow>& rows);
double quantized_product_bytes(const ModelConfig& model, const QuantizedConfig& config, double tokens,
                               double value_bytes, bool cuda);

}  // namespace gpt::plan
