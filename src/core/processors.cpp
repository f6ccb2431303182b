#include "gpt/core/processors.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "gpt/core/control_groups.h"

namespace gpt {
namespace {

int64_t processors_to_run_on() {
  constexpr size_t kMost = 1 << 16;
  for (size_t capacity = CPU_SETSIZE; capacity <= kMost; capacity *= 2) {  // too small for the machine: EINVAL
    std::vector<cpu_set_t> set(capacity / CPU_SETSIZE);
    const size_t bytes = set.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, set.data()) == 0) return CPU_COUNT_S(bytes, set.data());
  }
  return std::max(1U, std::thread::hardware_concurrency());
}

double first_number(const std::filesystem::path& path) {
  double number = 0;
  std::ifstream(path) >> number;
  return number;
}

// The processors' worth of time that a group may use; infinite without a quota, which is "max" in version 2 and -1 in version 1.
double quota_of(const std::filesystem::path& group) {
  double time = 0, period = 0;
  std::ifstream both(group / "cpu.max");
  if (!(both >> time >> period))
    time = first_number(group / "cpu.cfs_quota_us"), period = first_number(group / "cpu.cfs_period_us");
  return time > 0 && period > 0 ? time / period : std::numeric_limits<double>::infinity();
}

}  // namespace

int64_t usable_processors(const std::string& root) {
  // OpenMP may bind the thread that asks to one of them, so that only the first answer is right.
  static const int64_t to_run_on = processors_to_run_on();
  auto most = static_cast<double>(to_run_on);
  for (const auto& group : control_groups("cpu", root)) most = std::min(most, std::ceil(quota_of(group)));
  return static_cast<int64_t>(most);
}

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace gpt
