#include "gpt/diagnose/machine.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <charconv>
#include <string_view>
#include <unordered_map>

#include "gpt/core/format.h"
#include "gpt/core/processors.h"
#include "gpt/core/remedies.h"
#include "gpt/core/version.h"
#include "gpt/device/device.h"
#include "gpt/device/host.h"
#include "gpt/ops/probe.h"

#ifdef GPT_CUDA
#include <cuda_runtime_api.h>
#endif

namespace gpt::diagnose {
namespace {

using Capabilities = std::unordered_map<std::string, c10::IValue>;

bool has(const Capabilities& capabilities, const char* name) {
  const auto found = capabilities.find(name);
  return found != capabilities.end() && found->second.isBool() && found->second.toBool();
}

// The word after `key` in what LibTorch says about its own build: "COMMIT_SHA=70d99e9..., ".
std::string build_setting(std::string_view key) {
  const std::string config = at::show_config();
  const size_t start = config.find(fmt::format("{}=", key));
  if (start == std::string::npos) return "unknown";
  const size_t value = start + key.size() + 1;
  return config.substr(value, config.find_first_of(", \n", value) - value);
}

plan::Check check_libtorch() {
  const std::string running = build_setting("TORCH_VERSION"), commit = build_setting("COMMIT_SHA").substr(0, 12);
  if (running != TORCH_VERSION) {
    return plan::failed("LibTorch",
                        fmt::format("{} is loaded, this program was compiled for {}", running, TORCH_VERSION),
                        std::string(remedies().libtorch));
  }
  return plan::passed("LibTorch", fmt::format("{} (commit {}, CUDA {} inside), this program commit {}", running, commit,
                                              build_setting("CUDA_VERSION"), commit_id()));
}

// "32 cores (64 hyper-threads) in 2 NUMA nodes"
std::string cores_in_words() {
  const int64_t cores = usable_cores(), processors = usable_processors(), nodes = count_nodes(processors_to_run_on());
  return plural(cores, "core") + (processors > cores ? fmt::format(" ({} hyper-threads)", processors) : "") +
         (nodes > 1 ? fmt::format(" in {} NUMA nodes", nodes) : "");
}

plan::Checks check_cpu() {
  const device::DeviceInfo cpu = device::describe_device(at::kCPU);
  const Capabilities capabilities = at::cpu::get_cpu_capabilities();
  const ops::Probe attention = ops::probe_cpu_attention(at::kFloat);
  return {
      plan::passed("CPU", fmt::format("{}, {}, {} in use", cpu.name, cores_in_words(),
                                      plural(at::get_num_threads(), "thread"))),
      check_instructions(has(capabilities, "avx2"), has(capabilities, "avx512_f"), device::cpu_bfloat16(),
                         has(capabilities, "amx_tile")),
      attention.works
          ? plan::passed("CPU attention", fmt::format("ran forward and backward ({})", at::get_cpu_capability()))
          : plan::failed("CPU attention", attention.reason,
                         "set the environment variable ATEN_CPU_CAPABILITY=default, and report this"),
      check_free_memory("memory", device::free_bytes(at::kCPU), cpu.memory_bytes),
  };
}

plan::Check judge(const std::string& name, bool in_hardware, const ops::Probe& probe, const std::string& fix) {
  if (!in_hardware) return plan::warned(name, "not in this card's hardware", fix);
  return probe.works ? plan::passed(name, "ran") : plan::warned(name, probe.reason, fix);
}

plan::Checks check_gpu(at::Device device) {
  const std::string gpu = fmt::format("GPU {}", device.index());
  const device::DeviceInfo info = device::describe_device(device);
  const at::ScalarType type = info.bfloat16 ? at::kBFloat16 : at::kHalf;
  plan::Checks checks{plan::passed(gpu, fmt::format("{}, {:.1f} GB, compute capability {}.{}", info.name,
                                                    info.memory_bytes / 1e9, info.compute_major, info.compute_minor)),
                      check_free_memory(gpu + " memory", device::free_bytes(device), info.memory_bytes),
                      judge(gpu + " TF32", info.tf32, info.tf32 ? ops::probe_tf32(device) : ops::Probe{},
                            "float32 matrix products run in full precision"),
                      judge(gpu + " bfloat16", info.bfloat16,
                            info.bfloat16 ? ops::probe_product(device, at::kBFloat16) : ops::Probe{},
                            "dtype: auto uses float16 with loss scaling"),
                      judge(gpu + " float16", info.float16,
                            info.float16 ? ops::probe_product(device, at::kHalf) : ops::Probe{},
                            "set training.dtype: float32")};
  const auto attention = [&](const char* name, const ops::SdpBackends& kernels) {
    const ops::Probe probe = ops::probe_attention(device, kernels, type);
    const std::string title = fmt::format("{} {} attention", gpu, name);
    checks.push_back(probe.works
                         ? plan::passed(title, fmt::format("ran forward and backward in {}", c10::toString(type)))
                         : plan::warned(title, probe.reason, "LibTorch uses the next kernel that works here"));
  };
  attention("flash", {.flash = true});
  attention("cuDNN", {.cudnn = true});
  attention("efficient", {.efficient = true});
  return checks;
}

#ifdef GPT_CUDA
constexpr bool kCudaBuilt = true;

std::string cuda_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string cuda_versions(const std::string& driver) {
  int driver_cuda = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver_cuda) != cudaSuccess || cudaRuntimeGetVersion(&runtime) != cudaSuccess) return "";
  return fmt::format("NVIDIA driver {} (up to CUDA {}), runtime CUDA {}, cuDNN {}", driver, cuda_text(driver_cuda),
                     cuda_text(runtime), device::cudnn_version());
}
#else
constexpr bool kCudaBuilt = false;

std::string cuda_versions(const std::string&) { return ""; }
#endif

int major_of(const std::string& version) {
  int major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);
  return major;
}

}  // namespace

plan::Check check_cuda(const CudaState& state) {
  constexpr int kNeeded = host::kRequiredDriver;
  if (state.fault.empty()) return plan::passed("CUDA", state.versions);
  if (!state.gpu_present) return plan::passed("CUDA", "no NVIDIA GPU on this machine: training runs on the CPU");
  if (!state.built) {
    return plan::warned("CUDA", "this machine has an NVIDIA GPU but this build has no CUDA code",
                        std::string(remedies().cuda));
  }
  if (state.driver.empty()) {
    return plan::failed("CUDA", "there is an NVIDIA GPU but no driver: " + state.fault,
                        fmt::format("install NVIDIA driver {} or newer", kNeeded));
  }
  if (major_of(state.driver) < kNeeded) {
    return plan::failed("CUDA", state.fault,
                        fmt::format("upgrade NVIDIA driver {} to {} or newer", state.driver, kNeeded));
  }
  return plan::failed(
      "CUDA", state.fault,
      "check that nvidia-smi works, that CUDA_VISIBLE_DEVICES is not empty, and that a container runs with --gpus all");
}

plan::Check check_instructions(bool avx2, bool avx512, device::CpuBfloat16 bfloat16, bool amx) {
  std::string found;
  const auto add = [&](bool there, const char* name) {
    if (there) found += fmt::format("{}{}", found.empty() ? "" : " ", name);
  };
  add(avx2, "avx2");
  add(avx512, "avx512");
  add(bfloat16 == device::CpuBfloat16::fast, "bfloat16");
  add(bfloat16 == device::CpuBfloat16::slow, "bfloat16 (no faster than float32)");
  add(amx, "amx");
  if (!avx2) {
    return plan::warned("CPU instructions", "no avx2: LibTorch's fast kernels are not used",
                        "train on a CPU with AVX2, or on a GPU");
  }
  return plan::passed("CPU instructions", fmt::format("{}; LibTorch uses {}", found, at::get_cpu_capability()));
}

plan::Check check_free_memory(const std::string& name, int64_t free_bytes, int64_t total_bytes) {
  const std::string detail = fmt::format("{:.1f} GB free of {:.1f} GB", free_bytes / 1e9, total_bytes / 1e9);
  if (free_bytes < total_bytes / 4) {
    return plan::warned(name, detail, "stop the other programs that hold it, or train smaller batches");
  }
  return plan::passed(name, detail);
}

plan::Checks check_machine() {
  plan::Checks checks{check_libtorch()};
  for (auto& check : check_cpu()) checks.push_back(std::move(check));
  const device::DeviceChoice choice = device::select_device("auto");
  const std::string driver = host::nvidia_driver_version();
  checks.push_back(check_cuda({kCudaBuilt, host::has_nvidia_gpu(), driver,
                               cuda_versions(driver.empty() ? "of unknown version" : driver), choice.reason}));
  if (choice.device.is_cuda()) {
    for (int i = 0; i < at::detail::getCUDAHooks().getNumGPUs(); ++i) {
      const at::Device gpu(at::kCUDA, static_cast<at::DeviceIndex>(i));
      for (auto& check : check_gpu(gpu)) checks.push_back(std::move(check));
    }
  }
  return checks;
}

}  // namespace gpt::diagnose
