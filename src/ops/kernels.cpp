#include "kernels.h"

#include <optional>

namespace gpt::ops {
namespace {

const Kernels& kernels_on(at::Device device) {
#ifdef GPT_CUDA
  if (device.is_cuda()) return cuda_kernels();
#endif
  TORCH_CHECK(device.is_cpu(), "this build has no kernels for ", device);
  return cpu_kernels();
}

}  // namespace

Kernels& cpu_kernels() {
#define GPT_KERNEL(name) .name = cpu::name,
  static Kernels kernels{GPT_KERNELS(GPT_KERNEL).take_float16 = false};
#undef GPT_KERNEL
  return kernels;
}

DeviceKernels::DeviceKernels(const at::Tensor& x)
    : kernels_(kernels_on(x.device())), guard_(x.is_cpu() ? std::nullopt : std::optional(x.device())) {}

void check_kernel_type(const char* name, const at::Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16 || (type == at::kHalf && kernels_of(x)->take_float16), name,
              ": takes float32 or bfloat16 and, on a GPU, float16, got ", type);
}

}  // namespace gpt::ops
