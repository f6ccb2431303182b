#include "gpt/device/cpu_sensor.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include "gpt/core/processors.h"
#include "gpt/device/host.h"

namespace gpt::device {
namespace {

// Those lines of /proc/stat; the others are long.
std::string lines_of_processors(const char* path) {
  std::string text;
  std::FILE* const file = std::fopen(path, "re");
  if (!file) return text;
  char line[512];
  while (std::fgets(line, sizeof line, file) && std::string_view(line).starts_with("cpu")) text += line;
  std::fclose(file);
  return text;
}

// "cpu12 4705 150 1120 16250 520 30 45 7 0 0": user, nice, system, idle, iowait, irq, softirq, steal; guests are part of the first two.
struct TimesLine {
  int64_t processor = 0;
  double ticks[8] = {};
};

std::optional<TimesLine> times_line(std::string_view line) {
  TimesLine times;
  if (!line.starts_with("cpu")) return std::nullopt;
  const char *at = line.data() + 3, *const end = line.data() + line.size();
  const auto number = std::from_chars(at, end, times.processor);
  if (number.ec != std::errc()) return std::nullopt;  // "cpu " is the sum of all
  at = number.ptr;
  for (double& ticks : times.ticks) {
    while (at < end && *at == ' ') ++at;
    uint64_t value = 0;
    const auto read = std::from_chars(at, end, value);
    if (read.ec != std::errc()) return std::nullopt;
    ticks = static_cast<double>(value), at = read.ptr;
  }
  return times;
}

double since(double now, double before) { return std::max(0.0, now - before); }

}  // namespace

std::optional<ProcessorTimes> processor_times(std::string_view proc_stat, const std::vector<int64_t>& processors,
                                              double ticks_per_second) {
  enum { user, nice, system, idle, iowait, irq, softirq, steal };
  ProcessorTimes sum;
  size_t found = 0;
  while (!proc_stat.empty()) {
    const size_t end = std::min(proc_stat.find('\n'), proc_stat.size());
    const auto line = times_line(proc_stat.substr(0, end));
    proc_stat.remove_prefix(std::min(end + 1, proc_stat.size()));
    if (!line || std::find(processors.begin(), processors.end(), line->processor) == processors.end()) continue;
    const auto& t = line->ticks;
    sum.busy += (t[user] + t[nice] + t[system] + t[irq] + t[softirq]) / ticks_per_second;
    sum.stolen += t[steal] / ticks_per_second;
    ++found;
  }
  return found == processors.size() && found > 0 ? std::optional(sum) : std::nullopt;
}

CpuSensor::Senses CpuSensor::of_this_machine() {
  return {.proc_stat = [] { return lines_of_processors("/proc/stat"); },
          .seconds = seconds_since_boot,
          .own_seconds = processor_seconds,
          .memory =
              [bytes = host::memory_bytes()] {
                return Senses::Memory{bytes, std::min(bytes, host::unused_memory_bytes())};
              },
          .ticks_per_second = static_cast<double>(std::max(1L, sysconf(_SC_CLK_TCK)))};
}

CpuSensor::CpuSensor(Machine machine, Senses senses) : machine_(std::move(machine)), senses_(std::move(senses)) {}

CpuSensor::Mark CpuSensor::mark() const {
  return {senses_.seconds(), senses_.own_seconds(),
          processor_times(senses_.proc_stat(), machine_.processors, senses_.ticks_per_second)};
}

void CpuSensor::begin() { before_ = mark(); }

report::DeviceUse CpuSensor::read() {
  const Mark now = mark(), before = std::exchange(before_, now);
  report::DeviceUse use;
  use.cores = static_cast<double>(machine_.usable), use.threads = static_cast<double>(machine_.threads);
  const double seconds = now.seconds - before.seconds;
  if (seconds > 0) {
    const double own = since(now.own, before.own);
    use.cores_busy = own / seconds;
    // Beside a quota, what others do to the processors says nothing about what is left of it.
    const bool is_whole = machine_.usable == std::ssize(machine_.processors);
    if (now.all && before.all && is_whole) {
      use.cores_others = since(now.all->busy - before.all->busy, own) / seconds;
      use.cores_stolen = since(now.all->stolen, before.all->stolen) / seconds;
    }
  }
  const Senses::Memory memory = senses_.memory();
  if (memory.bytes > 0) {
    use.memory_mb = static_cast<double>(memory.bytes) / 1e6;
    use.memory_used_mb = static_cast<double>(memory.bytes - memory.free) / 1e6;
  }
  return use;
}

}  // namespace gpt::device
