#include "gpt/device/host.h"

#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>

#include "gpt/core/control_groups.h"
#include "gpt/core/file.h"

namespace gpt::host {
namespace {

namespace fs = std::filesystem;

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

// Whether Linux lists one of these among what the processor can do, on x86 or Arm.
bool has_cpu_flag(std::initializer_list<std::string_view> any) {
  std::istringstream flags(proc_field("/proc/cpuinfo", "flags") + " " + proc_field("/proc/cpuinfo", "Features"));
  for (std::string flag; flags >> flag;) {
    if (std::find(any.begin(), any.end(), flag) != any.end()) return true;
  }
  return false;
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

// The limit of a group. Version 1 writes the largest multiple of a page where there is none.
int64_t limit_in(const fs::path& path) {
  constexpr int64_t kMost = int64_t{1} << 60;
  const int64_t bytes = number_in(path, kUnlimited);
  return bytes < kMost ? bytes : kUnlimited;
}

// The part of what counts as used in a group that the kernel gives up first: pages of files, and caches of its own.
int64_t reclaimable_bytes(const fs::path& group, std::initializer_list<std::string_view> keys) {
  std::ifstream in(group / "memory.stat");
  int64_t sum = 0, value = 0;
  for (std::string key; in >> key >> value;) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) sum += value;
  }
  return sum;
}

// The memory of a single group of version 2. A group without a limit leaves everything.
GroupMemory memory_of(const fs::path& group, int64_t free_swap) {
  const int64_t limit = limit_in(group / "memory.max");
  if (limit == kUnlimited) return {};
  const int64_t used = number_in(group / "memory.current", 0) -
                       reclaimable_bytes(group, {"inactive_file", "active_file", "slab_reclaimable"}),
                free = std::max<int64_t>(0, limit - used),
                swap = number_in(group / "memory.swap.max", kUnlimited) - number_in(group / "memory.swap.current", 0);
  return {limit, free, free + std::clamp<int64_t>(swap, 0, free_swap)};
}

// The same for version 1, which limits memory, and also the sum of memory and swap.
GroupMemory memory_of_version_1(const fs::path& group, int64_t free_swap) {
  const int64_t limit = limit_in(group / "memory.limit_in_bytes");
  if (limit == kUnlimited) return {};
  const int64_t reclaimable = reclaimable_bytes(group, {"total_inactive_file", "total_active_file"}),
                free = std::max<int64_t>(0, limit - number_in(group / "memory.usage_in_bytes", 0) + reclaimable),
                sum = limit_in(group / "memory.memsw.limit_in_bytes"),
                sum_used = number_in(group / "memory.memsw.usage_in_bytes", 0) - reclaimable;
  return {limit, free, std::clamp<int64_t>(sum - std::max<int64_t>(0, sum_used), 0, free + free_swap)};
}

// Where there is no /proc the system call says less: what files occupy in memory does not count as free.
int64_t system_memory(const char* key, unsigned long(sysinfo::* field)) {
  if (const int64_t bytes = proc_kilobytes("/proc/meminfo", key); bytes > 0) return bytes;
  struct sysinfo info{};
  return sysinfo(&info) == 0 ? static_cast<int64_t>(info.*field * info.mem_unit) : kUnlimited;
}

int64_t total_bytes() { return system_memory("MemTotal", &sysinfo::totalram); }
int64_t available_bytes() { return system_memory("MemAvailable", &sysinfo::freeram); }

int64_t free_swap_bytes() { return proc_kilobytes("/proc/meminfo", "SwapFree"); }

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

// Threads of one core have the same siblings.
int64_t cpu_cores() {
  std::set<std::string> siblings;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/cpu", ignored)) {
    std::ifstream in(entry.path() / "topology/thread_siblings_list");
    if (std::string line; std::getline(in, line)) siblings.insert(line);
  }
  return std::ssize(siblings);
}

std::string system_name() {
  constexpr std::string_view kKey = "PRETTY_NAME=";
  utsname kernel{};
  uname(&kernel);
  const std::string running = std::string(kernel.sysname) + " " + kernel.release;
  std::ifstream in("/etc/os-release");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(kKey)) continue;
    std::erase(line, '"');
    return line.substr(kKey.size()) + ", " + running;
  }
  return running;
}

bool cpu_has_bfloat16() { return has_cpu_flag({"avx512_bf16", "amx_bf16", "bf16"}); }
bool cpu_has_bfloat16_matrices() { return has_cpu_flag({"amx_bf16", "bf16"}); }

GroupMemory group_memory(int64_t free_swap, const std::string& root) {
  GroupMemory tightest;
  for (const fs::path& group : control_groups("memory", root)) {
    for (const GroupMemory& one : {memory_of(group, free_swap), memory_of_version_1(group, free_swap)}) {
      tightest = {std::min(tightest.limit, one.limit), std::min(tightest.free, one.free),
                  std::min(tightest.growable, one.growable)};
    }
  }
  return tightest;
}

int64_t memory_bytes() { return std::min(total_bytes(), group_memory(0).limit); }

int64_t unused_memory_bytes() { return std::min(available_bytes(), group_memory(0).free); }

int64_t free_memory_bytes(int64_t processes) {
  return std::min(
      {unused_memory_bytes() / processes, left_by_limit(RLIMIT_AS, "VmSize"), left_by_limit(RLIMIT_DATA, "VmData")});
}

int64_t growable_memory_bytes() {
  return std::min({shared_memory_bytes(), left_by_limit(RLIMIT_AS, "VmSize"), left_by_limit(RLIMIT_DATA, "VmData")});
}

int64_t shared_memory_bytes() {
  const int64_t swap = free_swap_bytes();
  return std::min(available_bytes() + swap, group_memory(swap).growable);
}

bool limits_virtual_memory() { return left_by_limit(RLIMIT_AS, "VmSize") != kUnlimited; }

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
