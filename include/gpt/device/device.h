// Which device a run uses, verified by using it, and what it can do.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/training_config.h"

namespace gpt::device {

struct DeviceInfo {
  at::Device device = at::kCPU;
  std::string name;                                      // "NVIDIA H200", or the CPU's model name
  int64_t memory_bytes = 0;                              // memory of the GPU, or of the machine
  int compute_major = 0, compute_minor = 0;              // CUDA only
  int64_t multiprocessors = 0;                           // CUDA only; 132, as an H100 has, for a card that is not here
  bool bfloat16 = false, float16 = false, tf32 = false;  // in hardware, and faster than float32
  bool slow_bfloat16 = false;                            // in hardware, but no faster than float32: some CPUs
  // Dense peak FLOP/s for a compute dtype where it is known from the vendor's data sheet.
  std::optional<double> peak_flops(Dtype dtype) const;
};

// `spec`: auto | cpu | cuda | cuda:N. A CUDA device is verified by an allocation and a small product on it, and the calling
// thread's work there then goes to a recordable stream (graph.h). `auto` falls back to the CPU, saying why in `reason`. Throws
// gpt::Error(config) when an explicit device is not available.
struct DeviceChoice {
  at::Device device;
  std::string reason;      // why not a GPU; empty on a GPU or when the CPU was asked for
  bool is_wished = false;  // use_gpu: true was written out, which is device: auto
};
DeviceChoice select_device(const std::string& spec);
int64_t gpu_count();  // CUDA devices that this process sees

DeviceInfo describe_device(at::Device device);
int64_t multiprocessors_of(at::Device device);  // 0 on a CPU
std::string cudnn_version();                    // version of the library that runs: "9.19.0"; only where there is a GPU
// What a GPU of this compute capability can do, whether or not it is here.
DeviceInfo describe_gpu(at::Device device, std::string name, int64_t memory_bytes, int major, int minor);

int64_t allocated_bytes(at::Device device);       // by tensors now (CUDA), or the process's resident memory
int64_t peak_allocated_bytes(at::Device device);  // since the program started; of tensors, since reset_memory_peak()
int64_t tensor_bytes(at::Device device);          // by large tensors now; 0 where nobody counts them
int64_t peak_tensor_bytes(at::Device device);     // since the program started or reset_memory_peak()
int64_t library_bytes(at::Device device);         // the part of tensor_bytes() that cuBLAS keeps to work in
void reset_memory_peak(at::Device device);        // what was tried out before a run is not part of its peak
int64_t free_bytes(at::Device device);
void synchronize(at::Device device);  // sync: for timing and shutdown only

}  // namespace gpt::device
