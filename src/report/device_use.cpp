#include "gpt/report/device_use.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "gpt/core/format.h"

namespace gpt::report {
namespace {

constexpr double kBusy = 0.9;        // share of the time, from which a device counts as busy
constexpr double kNoticeable = 0.1;  // share of time or processors that is worth a word
constexpr double kFull = 0.95;       // share of memory, from which little more makes it run out
constexpr double kWellFilled = 0.8;  // share of a GPU's memory that a run should use
constexpr double kSlow = 0.5;        // share of the limit, below which a busy device has something to gain

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

// 2, 1.3, 0.05
std::string cores_text(double cores) {
  const double rounded = std::round(100 * cores) / 100;
  return cores >= 1 || rounded == 0 ? fmt::format("{}", std::round(10 * cores) / 10) : fmt::format("{}", rounded);
}

std::string memory_text(const DeviceUse& use) {
  return fmt::format("{} of {}", format_bytes(1e6 * *use.memory_used_mb), format_bytes(1e6 * *use.memory_mb));
}

// Threads that compute may be fewer than processors.
std::optional<double> busy_share(const DeviceUse& use) {
  if (!use.is_cpu()) return use.utilization;
  if (!use.cores_busy || use.threads.value_or(0) <= 0) return std::nullopt;
  return std::min(1.0, *use.cores_busy / *use.threads);
}

// How much of a share of the limit stands beside a device's being busy.
std::string reached_text(const ReachedShare& reached) {
  if (reached.efficiency)
    return fmt::format(", at {} of what a large product and a large copy would allow", percent(*reached.efficiency));
  if (reached.mfu) return fmt::format(", at {} of its peak speed", percent(*reached.mfu));
  return "";
}

std::string busy_text(const DeviceUse& use, double busy, const ReachedShare& reached) {
  if (!use.is_cpu()) return fmt::format("The GPU is busy {} of the time{}.", percent(busy), reached_text(reached));
  return fmt::format("This run keeps {} of {} busy{}.", cores_text(*use.cores_busy),
                     plural(std::llround(*use.cores), "core"), reached_text(reached));
}

bool is_noticeable(const DeviceUse::Value& share) { return share && *share >= kNoticeable; }

// Others matter where no processor is left for this run.
bool are_processors_taken(const DeviceUse& use) {
  return use.is_cpu() &&
         use.cores_busy.value_or(0) + use.cores_others.value_or(0) + use.cores_stolen.value_or(0) >= kBusy * *use.cores;
}

void add_slowdowns(const DeviceUse& use, std::vector<DeviceVerdict>& verdicts) {
  const auto add = [&](DeviceFinding finding, const DeviceUse::Value& share, const std::string& why) {
    if (is_noticeable(share))
      verdicts.push_back({finding, fmt::format("The GPU is slowed {} of the time {}", percent(*share), why)});
  };
  const std::string power =
      use.power_w && use.power_limit_w ? fmt::format(" ({:.0f} of {:.0f} W)", *use.power_w, *use.power_limit_w) : "";
  const std::string heat = use.temperature_c ? fmt::format(" ({:.0f} °C)", *use.temperature_c) : "";
  add(DeviceFinding::slowed_by_power, use.slowed_by_power,
      fmt::format("by the limit of its power{}, as is usual at full load; nvidia-smi -pl sets another.", power));
  add(DeviceFinding::slowed_by_heat, use.slowed_by_heat, fmt::format("by heat{}: see to its cooling.", heat));
  add(DeviceFinding::slowed_by_hardware, use.slowed_by_hardware,
      fmt::format("by its board, which is too hot or gets too little power{}: see to cooling and power supply.", heat));
  add(DeviceFinding::slowed_by_setting, use.slowed_by_setting,
      "by clocks that somebody has set; nvidia-smi -rac and -rgc reset them.");
}

void add_neighbours(const DeviceUse& use, std::vector<DeviceVerdict>& verdicts) {
  if (!are_processors_taken(use)) return;
  const auto taken = [&](const DeviceUse::Value& by) { return is_noticeable(by.value_or(0) / *use.cores); };
  if (taken(use.cores_others))
    verdicts.push_back(
        {DeviceFinding::others, fmt::format("Other programs take {} of {}.", cores_text(*use.cores_others),
                                            plural(std::llround(*use.cores), "core"))});
  if (taken(use.cores_stolen))
    verdicts.push_back(
        {DeviceFinding::stolen, fmt::format("The host of this virtual machine keeps {} of {} for others.",
                                            cores_text(*use.cores_stolen), plural(std::llround(*use.cores), "core"))});
}

void add_memory(const DeviceUse& use, std::vector<DeviceVerdict>& verdicts) {
  const auto share = use.memory_share();
  if (!share) return;
  if (*share >= kFull && use.is_cpu())
    verdicts.push_back(
        {DeviceFinding::memory_full,
         fmt::format("Memory is nearly full, with other programs' part of it: {}. When it is, the system "
                     "ends a process.",
                     memory_text(use))});
  if (*share >= kFull && !use.is_cpu())
    verdicts.push_back(
        {DeviceFinding::memory_full,
         fmt::format("The GPU's memory is nearly full: {}. A little more, of another program, say, ends the run.",
                     memory_text(use)),
         /*is_for_the_log=*/false});
  if (*share < kWellFilled && !use.is_cpu())
    verdicts.push_back(
        {DeviceFinding::memory_unused,
         fmt::format("The GPU's memory is used to {} ({}): a larger batch may be faster (training.batch_size: auto "
                     "measures that).",
                     percent(*share), memory_text(use)),
         /*is_for_the_log=*/false});
}

// Why a device is idle, where nothing else has explained it.
DeviceVerdict idle(const DeviceUse& use, double busy) {
  if (!use.is_cpu())
    return {
        DeviceFinding::idle,
        fmt::format("The GPU has nothing to do {} of the time, because its host does not keep up: a larger batch, or "
                    "compile_mode: reduce-overhead. `gpt-bench profile` shows what takes the time.",
                    percent(1 - busy))};
  return {
      DeviceFinding::idle,
      fmt::format("{} keep {} of {} busy: steps are small, or wait for something. `gpt-bench profile` shows what takes "
                  "the time.",
                  plural(std::llround(*use.threads), "thread"), cores_text(*use.cores_busy),
                  plural(std::llround(*use.cores), "core")),
      /*is_for_the_log=*/false};
}

}  // namespace

DeviceUse::Value DeviceUse::memory_share() const {
  return memory_used_mb && memory_mb && *memory_mb > 0 ? Value(*memory_used_mb / *memory_mb) : std::nullopt;
}

std::vector<DeviceVerdict> judge(const DeviceUse& use, const ReachedShare& reached) {
  std::vector<DeviceVerdict> verdicts;
  const auto busy = busy_share(use);
  if (busy) verdicts.push_back({DeviceFinding::busy, busy_text(use, *busy, reached), /*is_for_the_log=*/false});
  const size_t before_causes = verdicts.size();
  // A GPU computes on while its host waits for the next batch.
  const bool lacks_work = busy && *busy < kBusy;
  if (is_noticeable(use.data_wait) && (lacks_work || use.is_cpu()))
    verdicts.push_back(
        {DeviceFinding::waits_for_data,
         fmt::format("The run waits {} of the time for data: {}, or a faster disk.", percent(*use.data_wait),
                     use.is_cpu() ? "threads that build batches ahead (data.num_workers)"
                                  : "more data.num_workers, data.resident: on where there is room for all of it")});
  add_neighbours(use, verdicts);
  if (lacks_work && verdicts.size() == before_causes) verdicts.push_back(idle(use, *busy));
  add_slowdowns(use, verdicts);
  add_memory(use, verdicts);
  const auto share = reached.efficiency ? reached.efficiency : reached.mfu;
  if (busy && !lacks_work && share && *share < kSlow)
    verdicts.push_back(
        {DeviceFinding::busy_but_slow,
         "It is busy, but slow: a kernel counts as busy whatever it does. `gpt-bench profile` shows what "
         "takes the time.",
         /*is_for_the_log=*/false});
  return verdicts;
}

std::vector<DeviceVerdict> judge(const std::vector<DeviceUse>& devices, const ReachedShare& reached) {
  std::vector<size_t> order(devices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&devices](size_t i) { return busy_share(devices[i]).value_or(1); });
  std::vector<DeviceVerdict> verdicts;
  for (const size_t i : order) {
    for (DeviceVerdict& verdict : judge(devices[i], reached)) {
      if (std::ranges::find(verdicts, verdict.finding, &DeviceVerdict::finding) != verdicts.end()) continue;
      if (const std::string name = device_name(devices, i); !name.empty()) verdict.text = name + ": " + verdict.text;
      verdicts.push_back(std::move(verdict));
    }
  }
  return verdicts;
}

std::vector<DeviceUse> devices_of(const std::vector<DeviceUse>& processes, int64_t processes_per_machine) {
  std::vector<DeviceUse> devices;
  for (size_t i = 0; i < processes.size(); ++i) {
    const DeviceUse& use = processes[i];
    if (!use.is_cpu() || i % static_cast<size_t>(processes_per_machine) == 0) {
      devices.push_back(use);
      continue;
    }
    DeviceUse& machine = devices.back();
    const auto add = [](DeviceUse::Value& sum, const DeviceUse::Value& value) {
      sum = sum && value ? DeviceUse::Value(*sum + *value) : std::nullopt;
    };
    add(machine.threads, use.threads);
    add(machine.cores_busy, use.cores_busy);
    // The first one of a machine takes the others for other programs.
    if (machine.cores_others)
      machine.cores_others =
          use.cores_busy ? DeviceUse::Value(std::max(0.0, *machine.cores_others - *use.cores_busy)) : std::nullopt;
    machine.data_wait = std::max(machine.data_wait, use.data_wait);
  }
  return devices;
}

DeviceUse::Value least(const std::vector<DeviceUse>& devices, DeviceUse::Value DeviceUse::* value) {
  DeviceUse::Value found;
  for (const DeviceUse& use : devices)
    if (use.*value && (!found || *(use.*value) < *found)) found = use.*value;
  return found;
}

DeviceUse::Value most(const std::vector<DeviceUse>& devices, DeviceUse::Value DeviceUse::* value) {
  DeviceUse::Value found;
  for (const DeviceUse& use : devices) found = std::max(found, use.*value);
  return found;
}

DeviceUse::Value most_memory_share(const std::vector<DeviceUse>& devices) {
  DeviceUse::Value found;
  for (const DeviceUse& use : devices) found = std::max(found, use.memory_share());
  return found;
}

std::string device_name(const std::vector<DeviceUse>& devices, size_t i) {
  return devices.size() == 1 ? "" : fmt::format("{} {}", devices[i].is_cpu() ? "Machine" : "GPU", i);
}

std::string to_text(const DeviceUse& use) {
  std::vector<std::string> parts;
  if (use.utilization) parts.push_back(fmt::format("busy {}", percent(*use.utilization)));
  if (use.cores_busy && use.cores)
    parts.push_back(
        fmt::format("{} of {} busy", cores_text(*use.cores_busy), plural(std::llround(*use.cores), "core")));
  if (use.cores_others) parts.push_back("other programs " + cores_text(*use.cores_others));
  if (use.cores_stolen && *use.cores_stolen > 0)
    parts.push_back(fmt::format("{} kept by the host", cores_text(*use.cores_stolen)));
  if (use.memory_used_mb && use.memory_mb) parts.push_back("memory " + memory_text(use));
  if (use.power_w)
    parts.push_back(use.power_limit_w ? fmt::format("{:.0f} of {:.0f} W", *use.power_w, *use.power_limit_w)
                                      : fmt::format("{:.0f} W", *use.power_w));
  if (use.temperature_c) parts.push_back(fmt::format("{:.0f} °C", *use.temperature_c));
  if (use.clock_mhz)
    parts.push_back(use.max_clock_mhz ? fmt::format("{:.0f} of {:.0f} MHz", *use.clock_mhz, *use.max_clock_mhz)
                                      : fmt::format("{:.0f} MHz", *use.clock_mhz));
  if (use.data_wait && *use.data_wait >= 0.01)
    parts.push_back(fmt::format("waiting for data {}", percent(*use.data_wait)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace gpt::report
