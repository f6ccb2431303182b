// What the devices of a run did in an interval, as device/find_sensor.h reads them, and what that means in words.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace gpt::report {

// Means over the interval where the source allows it, otherwise as it was at its end. Nothing: the source does not say.
struct DeviceUse {
  using Value = std::optional<double>;
  // Values of a GPU alone.
  Value utilization = {};  // share of the time in which any kernel ran, whosever
  Value power_w = {}, power_limit_w = {}, temperature_c = {};
  Value clock_mhz = {}, max_clock_mhz = {};  // of its multiprocessors
  // Shares of the time in which its clocks were lower because of the limit of its power; of heat; of a circuit of the board, for either;
  // and because somebody has set them so.
  Value slowed_by_power = {}, slowed_by_heat = {}, slowed_by_hardware = {}, slowed_by_setting = {};
  // Values of a CPU alone, in processors' worth of time: what this run may use, its threads that compute, what it kept busy, what other
  // programs did (and the kernel for them), and what the machine that hosts this one has kept. To one process of several on a machine the
  // others are other programs.
  Value cores = {}, threads = {}, cores_busy = {}, cores_others = {}, cores_stolen = {};
  // Values of both. Memory: of a GPU, or of the machine or its control group, whichever is less; what is used, also by other programs.
  Value memory_used_mb = {}, memory_mb = {};
  Value data_wait = {};  // share of the time in which the run waited for its next batch

  bool is_cpu() const { return cores.has_value(); }
  Value memory_share() const;
  bool operator==(const DeviceUse&) const = default;
};

// All of its values, by their names in metrics.jsonl.
struct DeviceField {
  const char* name;
  DeviceUse::Value DeviceUse::* value;
};
inline constexpr std::array kDeviceFields{DeviceField{"utilization", &DeviceUse::utilization},
                                          DeviceField{"power_w", &DeviceUse::power_w},
                                          DeviceField{"power_limit_w", &DeviceUse::power_limit_w},
                                          DeviceField{"temperature_c", &DeviceUse::temperature_c},
                                          DeviceField{"clock_mhz", &DeviceUse::clock_mhz},
                                          DeviceField{"max_clock_mhz", &DeviceUse::max_clock_mhz},
                                          DeviceField{"slowed_by_power", &DeviceUse::slowed_by_power},
                                          DeviceField{"slowed_by_heat", &DeviceUse::slowed_by_heat},
                                          DeviceField{"slowed_by_hardware", &DeviceUse::slowed_by_hardware},
                                          DeviceField{"slowed_by_setting", &DeviceUse::slowed_by_setting},
                                          DeviceField{"cores", &DeviceUse::cores},
                                          DeviceField{"threads", &DeviceUse::threads},
                                          DeviceField{"cores_busy", &DeviceUse::cores_busy},
                                          DeviceField{"cores_others", &DeviceUse::cores_others},
                                          DeviceField{"cores_stolen", &DeviceUse::cores_stolen},
                                          DeviceField{"memory_used_mb", &DeviceUse::memory_used_mb},
                                          DeviceField{"memory_mb", &DeviceUse::memory_mb},
                                          DeviceField{"data_wait", &DeviceUse::data_wait}};

// The devices of a run, from what its processes read, in their order: each has a GPU of its own, or so many share a machine, of which they
// keep processors busy together.
std::vector<DeviceUse> devices_of(const std::vector<DeviceUse>& processes, int64_t processes_per_machine);

// The least and the most that any of the devices has; nothing where none says.
DeviceUse::Value least(const std::vector<DeviceUse>& devices, DeviceUse::Value DeviceUse::* value);
DeviceUse::Value most(const std::vector<DeviceUse>& devices, DeviceUse::Value DeviceUse::* value);
DeviceUse::Value most_memory_share(const std::vector<DeviceUse>& devices);

// How near the steps came to what the device can do, where that is known.
struct ReachedShare {
  std::optional<double> efficiency = {};  // EfficiencyRecord::share()
  std::optional<double> mfu = {};         // of the peak speed
};

enum class DeviceFinding {
  busy,
  idle,
  waits_for_data,
  slowed_by_power,
  slowed_by_heat,
  slowed_by_hardware,
  slowed_by_setting,
  others,
  stolen,
  memory_full,
  memory_unused,
  busy_but_slow
};

struct DeviceVerdict {
  DeviceFinding finding;
  std::string text;            // a sentence, which may end with what to do
  bool is_for_the_log = true;  // otherwise it is no news, and stands on the page alone
};

// How busy the device is, and then what keeps it from more.
std::vector<DeviceVerdict> judge(const DeviceUse& use, const ReachedShare& reached = {});
// Verdicts on several devices: each finding once, with the least busy one that has it.
std::vector<DeviceVerdict> judge(const std::vector<DeviceUse>& devices, const ReachedShare& reached = {});

// "1.93 of 2 cores busy, other programs 0.05, memory 3.20 GB of 8.00 GB"; what nobody knows is left out.
std::string to_text(const DeviceUse& use);
std::string device_name(const std::vector<DeviceUse>& devices,
                        size_t i);  // "GPU 3" or "Machine 3" of several, otherwise empty

}  // namespace gpt::report
