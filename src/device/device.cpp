#include "gpt/device/device.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/process_memory.h"
#include "gpt/core/remedies.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/cpu_bfloat16.h"
#include "gpt/device/graph.h"
#include "gpt/device/host.h"
#include "gpt/device/memory.h"

#ifdef GPT_CUDA
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <shared_mutex>
#endif

namespace gpt::device {
namespace {

// Either a device count above zero, or why there is none.
struct CudaDevices {
  int count = 0;
  std::string reason;
};

#ifdef GPT_CUDA

CudaDevices find_cuda_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  cudaGetLastError();  // a failed count must not be reported by the next launch check
  if (error == cudaSuccess && count > 0) return {count, ""};
  if (error == cudaSuccess || error == cudaErrorNoDevice) return {0, "no CUDA device found"};
  if (error == cudaErrorInsufficientDriver) {
    const std::string needed = fmt::format("CUDA 13.0 needs driver {} or newer", host::kRequiredDriver);
    const std::string driver = host::nvidia_driver_version();
    return {0, driver.empty() ? fmt::format("no NVIDIA driver found: {}", needed)
                              : fmt::format("driver too old: {}, this machine has {}", needed, driver)};
  }
  return {0, fmt::format("CUDA failed to start: {}", cudaGetErrorString(error))};
}

// Why the device cannot compute, empty when it can. sync: once, at the start.
std::string find_fault(at::Device device) {
  try {
    c10::cuda::set_device(device.index());
    const at::Tensor a = at::full({64, 64}, 0.5, at::TensorOptions(device).dtype(at::kFloat));
    const double sum = at::sum(at::mm(a, a)).item<double>();
    if (sum == 64 * 64 * 16.0) return "";
    return fmt::format("{} gives wrong results: a product that sums to 65536 gave {}", device.str(), sum);
  } catch (const std::exception& e) {
    const std::string why = first_line(e.what());
    if (!give_up_expandable_segments()) return fmt::format("{} does not work: {}", device.str(), why);
    const std::string fault = find_fault(device);
    if (fault.empty()) log::info("training.expandable_segments is off: the system refuses such segments: " + why);
    return fault;
  }
}

#else

CudaDevices find_cuda_devices() {
  if (!host::has_nvidia_gpu()) return {0, "built without CUDA"};
  return {0, fmt::format("this machine has an NVIDIA GPU but this build has no CUDA code: {}", remedies().cuda)};
}

std::string find_fault(at::Device) { return "built without CUDA"; }

#endif

// The N of `cuda:N`, 0 for `cuda`.
int parse_cuda_index(const std::string& spec) {
  if (spec == "cuda") return 0;
  int index = -1;
  if (spec.starts_with("cuda:")) {
    const char* end = spec.data() + spec.size();
    const auto result = std::from_chars(spec.data() + 5, end, index);
    if (result.ec != std::errc() || result.ptr != end) index = -1;
  }
  if (index < 0) {
    throw Error(ExitCode::config, fmt::format("device '{}' is not a device: use auto, cpu, cuda or cuda:N", spec));
  }
  return index;
}

[[noreturn]] void throw_unavailable(const std::string& spec, const std::string& reason) {
  throw Error(ExitCode::config, fmt::format("device '{}' is not available: {} (or use device auto)", spec, reason));
}

}  // namespace

int64_t gpu_count() { return find_cuda_devices().count; }

DeviceChoice select_device(const std::string& spec) {
  if (spec == "cpu") return {at::kCPU, ""};
  const bool automatic = spec == "auto";
  const int index = automatic ? 0 : parse_cuda_index(spec);
  const CudaDevices devices = find_cuda_devices();
  std::string reason = devices.reason;
  if (reason.empty() && index >= devices.count) {
    reason = devices.count == 1
                 ? "this machine has one CUDA device, cuda:0"
                 : fmt::format("this machine has {} CUDA devices, cuda:0 to cuda:{}", devices.count, devices.count - 1);
  }
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(reason.empty() ? index : 0));
  if (reason.empty()) {
    use_expandable_segments(true);
    reason = find_fault(device);
  }
  if (reason.empty()) {
    use_recordable_stream(device);
    return {device, ""};
  }
  if (!automatic) throw_unavailable(spec, reason);
  return {at::kCPU, reason};
}

DeviceInfo describe_gpu(at::Device device, std::string name, int64_t memory_bytes, int major, int minor) {
  return {.device = device,
          .name = std::move(name),
          .memory_bytes = memory_bytes,
          .compute_major = major,
          .compute_minor = minor,
          .multiprocessors = 132,
          .bfloat16 = major >= 8,
          .float16 = major >= 7,
          .tf32 = major >= 8};
}

std::string cudnn_version() {
  const long version = at::detail::getCUDAHooks().versionRuntimeCuDNN();
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

int64_t multiprocessors_of(at::Device device) {
#ifdef GPT_CUDA
  if (device.is_cuda()) return at::cuda::getDeviceProperties(device.index())->multiProcessorCount;
#endif
  TORCH_CHECK(device.is_cpu(), "multiprocessors_of: no support for ", device.str(), " in this build");
  return 0;
}

DeviceInfo describe_device(at::Device device) {
#ifdef GPT_CUDA
  if (device.is_cuda()) {
    const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(device.index());
    DeviceInfo info = describe_gpu(device, properties.name, static_cast<int64_t>(properties.totalGlobalMem),
                                   properties.major, properties.minor);
    info.multiprocessors = multiprocessors_of(device);
    return info;
  }
#endif
  TORCH_CHECK(device.is_cpu(), "describe_device: no support for ", device.str(), " in this build");
  DeviceInfo info;
  info.name = host::cpu_name();
  info.memory_bytes = host::memory_bytes();
  info.bfloat16 = cpu_bfloat16() == CpuBfloat16::fast;
  info.slow_bfloat16 = cpu_bfloat16() == CpuBfloat16::slow;
  return info;
}

#ifdef GPT_CUDA
namespace {

c10::CachingDeviceAllocator::Stat allocated(at::Device device) {
  at::globalContext().lazyInitDevice(at::kCUDA);
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).allocated_bytes[kAll];
}

}  // namespace
#endif

int64_t allocated_bytes(at::Device device) {
#ifdef GPT_CUDA
  if (device.is_cuda()) return allocated(device).current;
#endif
  TORCH_CHECK(device.is_cpu(), "allocated_bytes: no support for ", device.str(), " in this build");
  return process_memory::bytes();
}

int64_t tensor_bytes(at::Device device) { return device.is_cpu() ? cpu_memory().in_use : allocated_bytes(device); }

int64_t peak_tensor_bytes(at::Device device) {
  return device.is_cpu() ? cpu_memory().peak : peak_allocated_bytes(device);
}

int64_t library_bytes([[maybe_unused]] at::Device device) {
#ifdef GPT_CUDA
  if (device.is_cuda()) {
    const auto bytes = [](at::cuda::WorkspaceMapWithMutex& workspaces, size_t each) {
      const std::shared_lock lock(workspaces.mutex);
      return static_cast<int64_t>(workspaces.map.size() * each);
    };
    return bytes(at::cuda::cublas_handle_stream_to_workspace(), at::cuda::getChosenWorkspaceSize()) +
           bytes(at::cuda::cublaslt_handle_stream_to_workspace(), at::cuda::getCUDABlasLtWorkspaceSize());
  }
#endif
  return 0;
}

void reset_memory_peak(at::Device device) {
#ifdef GPT_CUDA
  if (device.is_cuda()) return c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
#endif
  TORCH_CHECK(device.is_cpu(), "reset_memory_peak: no support for ", device.str(), " in this build");
  reset_cpu_memory_peak();
}

int64_t peak_allocated_bytes(at::Device device) {
#ifdef GPT_CUDA
  if (device.is_cuda()) return allocated(device).peak;
#endif
  TORCH_CHECK(device.is_cpu(), "peak_allocated_bytes: no support for ", device.str(), " in this build");
  return process_memory::peak();
}

int64_t free_bytes(at::Device device) {
#ifdef GPT_CUDA
  if (device.is_cuda()) {
    c10::cuda::CUDAGuard guard(device);
    size_t free = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    namespace allocator = c10::cuda::CUDACachingAllocator;
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    // Within training.memory_fraction, whose allocator may not have been used yet.
    at::globalContext().lazyInitDevice(at::kCUDA);
    const double share = allocator::getMemoryFraction(device.index()) * static_cast<double>(total);
    const int64_t taken = allocator::getDeviceStats(device.index()).reserved_bytes[kAll].current;
    return std::max<int64_t>(0, std::min(static_cast<int64_t>(free), static_cast<int64_t>(share) - taken));
  }
#endif
  TORCH_CHECK(device.is_cpu(), "free_bytes: no support for ", device.str(), " in this build");
  return host::free_memory_bytes();
}

void synchronize(at::Device device) {
#ifdef GPT_CUDA
  if (device.is_cuda()) {
    c10::cuda::CUDAGuard guard(device);
    c10::cuda::device_synchronize();
    return;
  }
#endif
  TORCH_CHECK(device.is_cpu(), "synchronize: no support for ", device.str(), " in this build");
}

}  // namespace gpt::device
