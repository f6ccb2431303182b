// Whether a feature of a device really works: found out by running a tiny case, never from a table of devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "gpt/ops/sdp_backends.h"

namespace gpt::ops {

struct Probe {
  bool works = false;
  std::string reason;  // why not, in LibTorch's words
};

// A matrix product in `type`, compared with float32.
Probe probe_product(at::Device device, at::ScalarType type);

// Whether float32 products are really rounded to TF32 when it is allowed.
Probe probe_tf32(at::Device device);

// Causal attention, forward and backward, with every other kernel disabled; compared with the unfused one in float32.
Probe probe_attention(at::Device device, const SdpBackends& kernels, at::ScalarType type);
// The program's own attention on the CPU, probed in the same way.
Probe probe_cpu_attention(at::ScalarType type);

// FLOP/s of a matrix product of 4,096^3 in `type`, computed as the model does: the best of a few, taking about so many seconds. A
// smaller one on a CPU that would take long for it.
double measure_product_speed(at::Device device, at::ScalarType type, double seconds = 0.1);

// Bytes a second of a copy of 1 GB, of a quarter of that on a CPU, or of an eighth of the memory that is free. Each byte is read and
// written, and counts twice. The best of a few, taking about so many seconds.
double measure_copy_speed(at::Device device, double seconds = 0.1);

}  // namespace gpt::ops
