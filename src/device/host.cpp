#include "gpt/device/host.h"

#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <system_error>

#include "gpt/core/file.h"

namespace gpt::host {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The value of `key` in /proc's "key : value" files; empty when it is not there.
std::string proc_field(const char* path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

int64_t number_or(const std::string& text, int64_t fallback) {
  int64_t value = 0;
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc() ? value : fallback;
}

int64_t proc_kilobytes(const char* path, const char* key) { return 1024 * number_or(proc_field(path, key), 0); }

std::string first_word(const fs::path& path) {
  std::ifstream in(path);
  std::string word;
  in >> word;
  return word;
}

// A file of one number; "max" and a missing file are `fallback`.
int64_t number_in(const fs::path& path, int64_t fallback) { return number_or(first_word(path), fallback); }

struct MemoryLimit {
  int64_t bytes = kUnlimited, used = 0;
};

// The tightest limit of our control group and its ancestors.
MemoryLimit memory_limit() {
  MemoryLimit tightest;
  auto walk_up = [&](const fs::path& root, fs::path group, const char* limit, const char* used) {
    for (;; group = group.parent_path()) {
      const int64_t bytes = number_in(root / group / limit, kUnlimited);
      if (bytes < tightest.bytes) tightest = {bytes, number_in(root / group / used, 0)};
      if (group.empty()) return;
    }
  };
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "0::/group" (version 2) or "4:memory:/group" (version 1)
    const size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const fs::path group = fs::path(line.substr(slash)).relative_path();
    if (line.starts_with("0::")) walk_up("/sys/fs/cgroup", group, "memory.max", "memory.current");
    if (line.find(":memory:") != std::string::npos) {
      walk_up("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes");
    }
  }
  return tightest;
}

// What a limit of this process (ulimit -v, ulimit -d) leaves to it; `used`: the field of its status that counts against it.
int64_t left_by_limit(__rlimit_resource resource, const char* used) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - proc_kilobytes("/proc/self/status", used));
}

}  // namespace

std::string cpu_name() {
  std::string name = proc_field("/proc/cpuinfo", "model name");
  utsname system{};
  if (name.empty() && uname(&system) == 0) name = std::string(system.machine) + " CPU";  // aarch64 names no model
  return name;
}

bool cpu_has_bfloat16() {
  std::istringstream flags(proc_field("/proc/cpuinfo", "flags") + " " + proc_field("/proc/cpuinfo", "Features"));
  for (std::string flag; flags >> flag;) {
    if (flag == "avx512_bf16" || flag == "amx_bf16" || flag == "bf16") return true;
  }
  return false;
}

int64_t memory_bytes() { return std::min(proc_kilobytes("/proc/meminfo", "MemTotal"), memory_limit().bytes); }

int64_t free_memory_bytes() {
  const MemoryLimit group = memory_limit();
  return std::min({proc_kilobytes("/proc/meminfo", "MemAvailable"), std::max<int64_t>(0, group.bytes - group.used),
                   left_by_limit(RLIMIT_AS, "VmSize"), left_by_limit(RLIMIT_DATA, "VmData")});
}

bool limits_virtual_memory() { return left_by_limit(RLIMIT_AS, "VmSize") != kUnlimited; }

int64_t resident_bytes() { return proc_kilobytes("/proc/self/status", "VmRSS"); }
int64_t peak_resident_bytes() { return proc_kilobytes("/proc/self/status", "VmHWM"); }

bool has_nvidia_gpu() {
  std::error_code ignored;
  if (fs::exists("/dev/nvidia0", ignored) || fs::exists("/proc/driver/nvidia", ignored)) return true;
  // Without a driver the card is still on the PCI bus.
  const std::string devices = "/sys/bus/pci/devices";
  for (const std::string& name : names_in(devices, ignored)) {
    const fs::path device = devices + "/" + name;
    if (first_word(device / "vendor") == "0x10de" && first_word(device / "class").starts_with("0x03")) return true;
  }
  return false;
}

std::string nvidia_driver_version() {
  // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build ...": the first word that
  // starts with a digit and contains a dot.
  std::istringstream words(proc_field("/proc/driver/nvidia/version", "NVRM version"));
  for (std::string word; words >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word[0])) && word.find('.') != std::string::npos) return word;
  }
  return "";
}

}  // namespace gpt::host
