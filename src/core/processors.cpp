#include "gpt/core/processors.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "gpt/core/control_groups.h"
#include "gpt/core/cpu_topology.h"

namespace gpt {
namespace {

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

int64_t within_quota(int64_t count, const std::string& root) {
  auto most = static_cast<double>(count);
  for (const auto& group : control_groups("cpu", root)) most = std::min(most, std::ceil(quota_of(group)));
  return static_cast<int64_t>(most);
}

}  // namespace

const std::vector<Processor>& processors_to_run_on() {
  static const std::vector<Processor> to_run_on = describe_processors(processors_of_mask());
  return to_run_on;
}

int64_t usable_processors(const std::string& root) { return within_quota(std::ssize(processors_to_run_on()), root); }
int64_t usable_cores(const std::string& root) { return within_quota(count_cores(processors_to_run_on()), root); }

double seconds_since_boot() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
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
