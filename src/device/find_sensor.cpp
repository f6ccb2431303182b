#include "gpt/device/find_sensor.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "gpt/core/processors.h"
#include "gpt/device/cpu_sensor.h"
#include "gpt/device/nvml_sensor.h"

#ifdef GPT_CUDA
#include <ATen/cuda/CUDAContextLight.h>
#include <cuda_runtime_api.h>
#endif

namespace gpt::device {
namespace {

#ifdef GPT_CUDA
GpuAddress address_of(at::Device device) {
  const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(device.index());
  GpuAddress address;
  for (const int i : {0, 1, 2, 3, -1, 4, 5, -1, 6, 7, -1, 8, 9, -1, 10, 11, 12, 13, 14, 15})
    address.uuid += i < 0 ? "-" : fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
  address.pci =
      fmt::format("{:08x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID, properties.pciDeviceID);
  return address;
}
#endif

}  // namespace

FoundSensor find_sensor(at::Device device) {
#ifdef GPT_CUDA
  if (device.is_cuda()) return find_nvml_sensor(address_of(device));
#endif
  TORCH_CHECK(device.is_cpu(), "find_sensor: no support for ", device.str(), " in this build");
  CpuSensor::Machine machine{.usable = usable_processors(), .threads = at::get_num_threads()};
  for (const Processor& processor : processors_to_run_on()) machine.processors.push_back(processor.id);
  return {std::make_unique<CpuSensor>(std::move(machine), CpuSensor::of_this_machine())};
}

}  // namespace gpt::device
