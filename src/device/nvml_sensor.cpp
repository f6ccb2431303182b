#include "gpt/device/nvml_sensor.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace gpt::device {
namespace {

// ---- NVML's ABI: names, numbers and layouts as its documentation gives them ----

using NvmlStatus = int;
constexpr NvmlStatus kNvmlSuccess = 0;
using NvmlDevice = void*;
using Count = unsigned int;
using Large = unsigned long long;

struct NvmlUtilization {
  Count gpu, memory;  // percent
};
struct NvmlMemory {
  Large total, free, used;  // bytes
};
struct NvmlSample {
  Large time;  // µs
  union {
    double real;
    Count count;
    Large large;
  } value;
};
struct NvmlViolation {
  Large reference_us, violation_ns;
};

constexpr int kUtilizationSamples = 1, kTemperatureOfDie = 0, kClockOfMultiprocessors = 1;
constexpr int kPowerPolicy = 0, kThermalPolicy = 1;
// Why clocks are lower than they could be.
constexpr Large kClocksSetting = 0x2, kPowerCap = 0x4, kHardwareSlowdown = 0x8, kThermalSlowdown = 0x20,
                kHardwareThermal = 0x40, kPowerBrake = 0x80, kDisplaySetting = 0x100;

struct NvmlFunctions {
  NvmlStatus (*init)() = nullptr;
  NvmlStatus (*shutdown)() = nullptr;
  const char* (*error_text)(NvmlStatus) = nullptr;
  NvmlStatus (*by_uuid)(const char*, NvmlDevice*) = nullptr;
  NvmlStatus (*by_pci)(const char*, NvmlDevice*) = nullptr;
  NvmlStatus (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  NvmlStatus (*samples)(NvmlDevice, int, Large, int*, Count*, NvmlSample*) = nullptr;
  NvmlStatus (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlStatus (*power)(NvmlDevice, Count*) = nullptr;        // mW
  NvmlStatus (*energy)(NvmlDevice, Large*) = nullptr;       // mJ, ever since the driver was loaded
  NvmlStatus (*power_limit)(NvmlDevice, Count*) = nullptr;  // mW
  NvmlStatus (*temperature)(NvmlDevice, int, Count*) = nullptr;
  NvmlStatus (*clock)(NvmlDevice, int, Count*) = nullptr;  // MHz
  NvmlStatus (*max_clock)(NvmlDevice, int, Count*) = nullptr;
  NvmlStatus (*reasons)(NvmlDevice, Large*) = nullptr;
  NvmlStatus (*violation)(NvmlDevice, int, NvmlViolation*) = nullptr;
};

// ---- the library ----

class NvmlLibrary {
 public:
  // Empty, or why the library cannot be used.
  std::string open(const std::string& path);
  NvmlLibrary() = default;
  ~NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  const NvmlFunctions& functions() const { return functions_; }
  std::string error_text(NvmlStatus status) const {
    return functions_.error_text ? functions_.error_text(status) : fmt::format("error {}", status);
  }

 private:
  template <class Function>
  bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    return function != nullptr;
  }

  void* handle_ = nullptr;
  bool is_begun_ = false;
  NvmlFunctions functions_;
};

std::string NvmlLibrary::open(const std::string& path) {
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_) return fmt::format("{}, which comes with NVIDIA's driver, is not there", path);
  NvmlFunctions& f = functions_;
  find(f.error_text, "nvmlErrorString");
  find(f.by_uuid, "nvmlDeviceGetHandleByUUID");
  find(f.utilization, "nvmlDeviceGetUtilizationRates");
  find(f.samples, "nvmlDeviceGetSamples");
  find(f.memory, "nvmlDeviceGetMemoryInfo");
  find(f.power, "nvmlDeviceGetPowerUsage");
  find(f.energy, "nvmlDeviceGetTotalEnergyConsumption");
  find(f.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  find(f.temperature, "nvmlDeviceGetTemperature");
  find(f.clock, "nvmlDeviceGetClockInfo");
  find(f.max_clock, "nvmlDeviceGetMaxClockInfo");
  find(f.violation, "nvmlDeviceGetViolationStatus");
  if (!find(f.reasons, "nvmlDeviceGetCurrentClocksEventReasons"))  // the name of the same before driver 535
    find(f.reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  for (const char* missing :
       {find(f.init, "nvmlInit_v2") ? nullptr : "nvmlInit_v2",
        find(f.shutdown, "nvmlShutdown") ? nullptr : "nvmlShutdown",
        find(f.by_pci, "nvmlDeviceGetHandleByPciBusId_v2") ? nullptr : "nvmlDeviceGetHandleByPciBusId_v2"})
    if (missing) return fmt::format("{} is too old: it has no {}", path, missing);
  if (const NvmlStatus status = f.init(); status != kNvmlSuccess)
    return fmt::format("{} does not start: {}", path, error_text(status));
  is_begun_ = true;
  return "";
}

NvmlLibrary::~NvmlLibrary() {
  if (is_begun_) functions_.shutdown();
  if (handle_) dlclose(handle_);
}

// What a function says of the device with these arguments; nothing where it is missing, not supported or fails.
template <class Result, class... Parameters, class... Arguments>
std::optional<Result> asked(NvmlStatus (*function)(NvmlDevice, Parameters...), NvmlDevice device,
                            Arguments... arguments) {
  Result result{};
  if (!function || function(device, arguments..., &result) != kNvmlSuccess) return std::nullopt;
  return result;
}

// ---- what it says ----

class NvmlSensor : public DeviceSensor {
 public:
  explicit NvmlSensor(std::unique_ptr<NvmlLibrary> library) : library_(std::move(library)) {}
  std::string find(const GpuAddress& gpu);  // empty, or why it is not found
  void begin() override { (void)read(); }
  report::DeviceUse read() override;

 private:
  report::DeviceUse::Value utilization();
  report::DeviceUse::Value power(double seconds);
  void read_slowdowns(report::DeviceUse& use, double seconds);
  // A counter's growth since the last reading, in `unit`s for each second; nothing at the first one.
  report::DeviceUse::Value rate(std::optional<Large> now, std::optional<Large>& before, double unit, double seconds);

  std::unique_ptr<NvmlLibrary> library_;
  const NvmlFunctions& nvml_ = library_->functions();
  NvmlDevice device_ = nullptr;
  std::chrono::steady_clock::time_point read_{};
  Large last_sample_ = 0;  // its time
  std::vector<NvmlSample> samples_;
  std::optional<Large> energy_, power_violation_, thermal_violation_;
};

std::string NvmlSensor::find(const GpuAddress& gpu) {
  for (const char* kind : {"GPU-", "MIG-"})
    if (nvml_.by_uuid && nvml_.by_uuid((kind + gpu.uuid).c_str(), &device_) == kNvmlSuccess) return "";
  const NvmlStatus status = nvml_.by_pci(gpu.pci.c_str(), &device_);
  return status == kNvmlSuccess
             ? ""
             : fmt::format("it does not know the GPU at {}: {}", gpu.pci, library_->error_text(status));
}

report::DeviceUse NvmlSensor::read() {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - std::exchange(read_, now)).count();
  report::DeviceUse use;
  use.utilization = utilization();
  use.power_w = power(seconds);
  const auto set = [](report::DeviceUse::Value& value, std::optional<Count> number, double unit) {
    if (number) value = *number * unit;
  };
  set(use.power_limit_w, asked<Count>(nvml_.power_limit, device_), 1e-3);
  set(use.temperature_c, asked<Count>(nvml_.temperature, device_, kTemperatureOfDie), 1);
  set(use.clock_mhz, asked<Count>(nvml_.clock, device_, kClockOfMultiprocessors), 1);
  set(use.max_clock_mhz, asked<Count>(nvml_.max_clock, device_, kClockOfMultiprocessors), 1);
  if (const auto memory = asked<NvmlMemory>(nvml_.memory, device_)) {
    use.memory_used_mb = static_cast<double>(memory->used) / 1e6;
    use.memory_mb = static_cast<double>(memory->total) / 1e6;
  }
  read_slowdowns(use, seconds);
  return use;
}

// The driver keeps the samples of some seconds. Where there are none, as in an interval that is shorter than a sample, it gives the latest.
report::DeviceUse::Value NvmlSensor::utilization() {
  Count count = 0;
  int type = 0;
  double sum = 0, taken = 0;
  const auto ask = [&](NvmlSample* into) {
    return nvml_.samples &&
           nvml_.samples(device_, kUtilizationSamples, last_sample_, &type, &count, into) == kNvmlSuccess;
  };
  if (samples_.empty() && ask(nullptr)) samples_.resize(std::min<Count>(count, 10'000));
  count = static_cast<Count>(samples_.size());
  if (!samples_.empty() && ask(samples_.data())) {
    count = std::min<Count>(count, static_cast<Count>(samples_.size()));
    const Large before = last_sample_;
    for (Count i = 0; i < count; ++i) {
      if (samples_[i].time <= before) continue;
      sum += samples_[i].value.count, ++taken;
      last_sample_ = std::max(last_sample_, samples_[i].time);
    }
  }
  if (taken > 0) return sum / taken / 100;
  const auto latest = asked<NvmlUtilization>(nvml_.utilization, device_);
  return latest ? report::DeviceUse::Value(latest->gpu / 100.0) : std::nullopt;
}

report::DeviceUse::Value NvmlSensor::rate(std::optional<Large> now, std::optional<Large>& before, double unit,
                                          double seconds) {
  const auto last = std::exchange(before, now);
  if (!now || !last || *now < *last || seconds <= 0) return std::nullopt;
  return static_cast<double>(*now - *last) * unit / seconds;
}

report::DeviceUse::Value NvmlSensor::power(double seconds) {
  if (const auto mean = rate(asked<Large>(nvml_.energy, device_), energy_, 1e-3, seconds)) return mean;
  const auto latest = asked<Count>(nvml_.power, device_);
  return latest ? report::DeviceUse::Value(*latest * 1e-3) : std::nullopt;
}

// The driver counts the time of two of them. Whether one of the others holds is known for the moment alone.
void NvmlSensor::read_slowdowns(report::DeviceUse& use, double seconds) {
  const auto counted = [&](int policy, std::optional<Large>& before) {
    const auto violation = asked<NvmlViolation>(nvml_.violation, device_, policy);
    const auto share = rate(violation ? std::optional(violation->violation_ns) : std::nullopt, before, 1e-9, seconds);
    return share ? report::DeviceUse::Value(std::min(1.0, *share)) : std::nullopt;
  };
  use.slowed_by_power = counted(kPowerPolicy, power_violation_);
  use.slowed_by_heat = counted(kThermalPolicy, thermal_violation_);
  const auto reasons = asked<Large>(nvml_.reasons, device_);
  if (!reasons) return;
  const auto holds = [&](Large any) { return (*reasons & any) != 0 ? 1.0 : 0.0; };
  if (!use.slowed_by_power) use.slowed_by_power = holds(kPowerCap);
  if (!use.slowed_by_heat) use.slowed_by_heat = holds(kThermalSlowdown);
  use.slowed_by_hardware = holds(kHardwareSlowdown | kHardwareThermal | kPowerBrake);
  use.slowed_by_setting = holds(kClocksSetting | kDisplaySetting);
}

}  // namespace

FoundSensor find_nvml_sensor(const GpuAddress& gpu, const std::string& path) {
  auto library = std::make_unique<NvmlLibrary>();
  if (std::string reason = library->open(path); !reason.empty()) return {nullptr, std::move(reason)};
  auto sensor = std::make_unique<NvmlSensor>(std::move(library));
  if (std::string reason = sensor->find(gpu); !reason.empty()) return {nullptr, std::move(reason)};
  return {std::move(sensor)};
}

}  // namespace gpt::device
