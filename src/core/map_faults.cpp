#include "gpt/core/map_faults.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/hash.h"

namespace gpt::map_faults {
namespace {

// The handler may take no lock: it reads slots that are published by their `begin`.
struct Slot {
  std::atomic<uintptr_t> begin{0};  // 0: free
  size_t bytes = 0;
  std::atomic<bool> is_harmed{false};
  std::string path;
  struct stat info{};
  std::vector<std::pair<std::span<const std::byte>, std::string>> remembered;  // parts and their hashes
};

constexpr size_t kMostFiles = 1024;  // more are mapped all the same, but not watched
std::array<Slot, kMostFiles> slots;
std::atomic<bool> any_harmed{false};
std::mutex slots_mutex;
uintptr_t page_size = 4096;

// Puts a page of zeros where the file has none any more. Only calls that are allowed in a handler.
void replace_page(int, siginfo_t* fault, void*) {
  const auto address = reinterpret_cast<uintptr_t>(fault->si_addr);
  for (Slot& slot : slots) {
    const uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= begin + slot.bytes) continue;
    void* const page = reinterpret_cast<void*>(address / page_size * page_size);
    if (mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) break;
    slot.is_harmed = true;
    any_harmed = true;
    return;
  }
  signal(SIGBUS, SIG_DFL);  // not ours: it ends the process
  raise(SIGBUS);
}

void install_handler() {
  page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action{};
  action.sa_sigaction = replace_page;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGBUS, &action, nullptr);
}

bool has_same_content(const Slot& slot) {
  for (const auto& [part, hash] : slot.remembered) {
    if (hash128({reinterpret_cast<const char*>(part.data()), part.size()}) != hash) return false;
  }
  return !slot.remembered.empty() && !slot.is_harmed;
}

// A file that was only touched is compared once for each new time.
bool is_changed(Slot& slot) {
  struct stat now{};
  if (stat(slot.path.c_str(), &now) != 0) return false;  // removed: what is mapped stays
  const bool is_same_file = now.st_dev == slot.info.st_dev && now.st_ino == slot.info.st_ino;
  const bool is_same_time =
      now.st_mtim.tv_sec == slot.info.st_mtim.tv_sec && now.st_mtim.tv_nsec == slot.info.st_mtim.tv_nsec;
  if (!is_same_file || (now.st_size == slot.info.st_size && is_same_time)) return false;
  if (now.st_size != slot.info.st_size || !has_same_content(slot)) return true;
  slot.info = now;
  return false;
}

}  // namespace

void watch(const void* data, const struct stat& info, const std::string& path) {
  static std::once_flag once;
  std::call_once(once, install_handler);
  std::lock_guard lock(slots_mutex);
  for (Slot& slot : slots) {
    if (slot.begin != 0) continue;
    slot.bytes = static_cast<size_t>(info.st_size);
    slot.path = path;
    slot.is_harmed = false;
    slot.info = info;
    slot.remembered.clear();
    slot.begin.store(reinterpret_cast<uintptr_t>(data), std::memory_order_release);
    return;
  }
}

void forget(const void* data) {
  std::lock_guard lock(slots_mutex);
  for (Slot& slot : slots) {
    if (slot.begin == reinterpret_cast<uintptr_t>(data)) slot.begin = 0;
  }
}

void remember(std::span<const std::byte> part, const std::string& hash) {
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  std::lock_guard lock(slots_mutex);
  for (Slot& slot : slots) {
    if (slot.begin == 0 || begin < slot.begin || begin + part.size() > slot.begin + slot.bytes) continue;
    slot.remembered.emplace_back(part, hash);
  }
}

void require_intact() {
  if (!any_harmed) return;
  std::lock_guard lock(slots_mutex);
  for (const Slot& slot : slots) {
    if (slot.begin != 0 && slot.is_harmed) {
      throw Error(ExitCode::data, slot.path + " was truncated while it was in use: restore it, and start again");
    }
  }
}

std::string changed_file() {
  std::lock_guard lock(slots_mutex);
  for (Slot& slot : slots) {
    if (slot.begin != 0 && (slot.is_harmed || is_changed(slot))) return slot.path;
  }
  return "";
}

}  // namespace gpt::map_faults
