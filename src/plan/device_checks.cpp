#include "gpt/plan/device_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/device/precision.h"

namespace gpt::plan {

Check check_device(const std::string& spec, const device::DeviceInfo& device, const device::DeviceInfo& best,
                   bool gpu_present) {
  const std::string detail = fmt::format("device: {} is {}, {:.1f} GB", spec, device.name, device.memory_bytes / 1e9);
  if (device.device.is_cuda()) return passed("device", detail);
  if (best.device.is_cuda()) {
    return warned("device", fmt::format("{}, but {} is available and works", detail, best.name), "set device: auto");
  }
  if (gpu_present) {
    return warned("device", detail + ", but this machine has a GPU that is not usable",
                  "follow the advice of the CUDA check");
  }
  return passed("device", detail);
}

Check check_precision(const PrecisionConfig& config, const device::DeviceInfo& device) {
  const std::string fix = "set training.use_amp: true and training.dtype: auto";
  device::Precision precision;
  try {
    precision = device::resolve_precision(config, device);
  } catch (const Error& e) { return failed("precision", e.what(), fix); }
  const bool gpu = device.device.is_cuda();
  if (gpu && precision.dtype == Dtype::float32 && (device.tf32 || device.float16)) {
    return warned("precision", fmt::format("float32 leaves the tensor cores of {} idle", device.name), fix);
  }
  if (gpu && precision.dtype == Dtype::tf32 && device.bfloat16) {
    return warned("precision", "tf32 takes twice the time and memory of bfloat16 in matrix products", fix);
  }
  if (gpu && precision.dtype == Dtype::float16 && device.bfloat16) {
    return warned("precision",
                  fmt::format("float16 needs loss scaling, and {} has bfloat16, which does not", device.name), fix);
  }
  return passed("precision", precision.reason);
}

Check check_threads(int64_t threads, int64_t cores, int64_t processes) {
  const int64_t of_each = threads > 0 ? threads : std::max<int64_t>(1, cores / processes);
  const std::string owners = processes > 1 ? fmt::format(" in each of {} processes", processes) : "";
  if (of_each * processes > cores) {
    return warned("threads",
                  fmt::format("{}{} on {} wait for each other", plural(of_each, "thread"), owners,
                              plural(cores, "core")),
                  processes > cores ? fmt::format("set distributed.processes: {} or less", cores) : "set threads: 0");
  }
  return passed("threads", fmt::format("{}{} on {}", of_each, owners, plural(cores, "core")));
}

Check lack_of_gpus(int64_t processes, int64_t gpus) {
  return failed("GPUs", fmt::format("{} processes need one each, and there are {}", processes, gpus),
                "set distributed.processes: auto");
}

Check check_numa(int64_t nodes, int64_t processes) {
  if (processes % nodes == 0)
    return passed("NUMA", fmt::format("each process keeps to one of {} nodes, and its memory is there", nodes));
  return warned(
      "NUMA",
      fmt::format("{} with the processors of several of the {} nodes, and much of its memory is far from them",
                  processes == 1 ? "the run computes" : "each process computes", nodes),
      fmt::format("set distributed.processes: {}", std::max<int64_t>(1, processes / nodes) * nodes));
}

}  // namespace gpt::plan
