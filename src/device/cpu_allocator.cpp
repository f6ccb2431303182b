#include "gpt/device/cpu_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "gpt/device/host.h"

namespace gpt::device {
namespace {

constexpr size_t kAlignment = 64;           // a cache line, and what LibTorch's kernels expect
constexpr size_t kSmall = size_t{1} << 16;  // below it, malloc
constexpr size_t kGrowth = size_t{1} << 26;
constexpr size_t kHugePage = size_t{1} << 21;

constexpr size_t rounded_up(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

// Blocks of one address range, from its beginning up to `top`; between them lie gaps, and no two gaps touch.
class Range {
 public:
  // False where the system gives no such range.
  bool reserve(size_t bytes) {
    void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return false;
    end_ = reinterpret_cast<uintptr_t>(range) + bytes;
    begin_ = usable_ = top_ = highest_top_ = rounded_up(reinterpret_cast<uintptr_t>(range), kHugePage);
    // Larger pages save faults and address translations. A kernel without them refuses, which does no harm.
    (void)madvise(range, bytes, MADV_HUGEPAGE);
    return true;
  }

  // `bytes` is a multiple of kAlignment. Null when there is no memory for it.
  void* take(size_t bytes) {
    std::lock_guard lock(mutex_);
    uintptr_t block = top_;
    if (const auto gap = gaps_by_size_.lower_bound({bytes, 0}); gap != gaps_by_size_.end()) {
      const auto [size, address] = *gap;
      block = address;
      remove_gap(address, size);
      if (size > bytes) add_gap(address + bytes, size - bytes);
    } else {
      if (!make_usable(top_ + bytes)) return nullptr;
      top_ += bytes;
      highest_top_ = std::max(highest_top_, top_);
    }
    blocks_[block] = bytes;
    in_use_ += static_cast<int64_t>(bytes);
    peak_ = std::max(peak_, in_use_);
    return reinterpret_cast<void*>(block);
  }

  void give_back(uintptr_t block) {
    std::lock_guard lock(mutex_);
    const auto entry = blocks_.find(block);
    size_t bytes = entry->second;
    blocks_.erase(entry);
    in_use_ -= static_cast<int64_t>(bytes);
    const auto after = gaps_.lower_bound(block);
    if (after != gaps_.begin()) {
      if (const auto [address, size] = *std::prev(after); address + size == block) {
        remove_gap(address, size);
        block = address, bytes += size;
      }
    }
    if (const auto next = gaps_.lower_bound(block); next != gaps_.end() && next->first == block + bytes) {
      bytes += next->second;
      remove_gap(next->first, next->second);
    }
    if (block + bytes == top_) {
      top_ = block;
    } else {
      add_gap(block, bytes);
    }
  }

  bool holds(uintptr_t address) const { return address >= begin_ && address < end_; }

  CpuMemory memory() {
    std::lock_guard lock(mutex_);
    return {in_use_, peak_, static_cast<int64_t>(highest_top_ - begin_)};
  }

  void reset_peak() {
    std::lock_guard lock(mutex_);
    peak_ = in_use_;
  }

  void limit(std::function<int64_t()> room) {
    std::lock_guard lock(mutex_);
    room_ = std::move(room);
  }

  void release() {
    std::lock_guard lock(mutex_);
    for (const auto& [address, bytes] : gaps_) drop(address, address + bytes);
    drop(top_, usable_);
    highest_top_ = top_;
    // To grow again, the range asks again; until then these pages do not count against a limit (ulimit -d) either.
    const uintptr_t end = std::min(usable_, rounded_up(top_, kHugePage));
    if (end < usable_ && mprotect(reinterpret_cast<void*>(end), usable_ - end, PROT_NONE) == 0) usable_ = end;
  }

 private:
  void drop(uintptr_t begin, uintptr_t end) {
    begin = rounded_up(begin, kHugePage), end = end / kHugePage * kHugePage;
    if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }

  void add_gap(uintptr_t address, size_t bytes) {
    gaps_[address] = bytes;
    gaps_by_size_.insert({bytes, address});
  }

  void remove_gap(uintptr_t address, size_t bytes) {
    gaps_.erase(address);
    gaps_by_size_.erase({bytes, address});
  }

  bool make_usable(uintptr_t end) {
    if (end <= usable_) return true;
    const int64_t room = room_ ? room_() : host::kUnlimited;
    for (const uintptr_t target : {rounded_up(end, kGrowth), rounded_up(end, kHugePage)}) {
      const size_t growth = target - usable_;
      if (target > end_ || static_cast<int64_t>(growth) > room) continue;
      if (mprotect(reinterpret_cast<void*>(usable_), growth, PROT_READ | PROT_WRITE) != 0) continue;
      usable_ = target;
      return true;
    }
    return false;
  }

  std::mutex mutex_;
  uintptr_t begin_ = 0, end_ = 0;
  uintptr_t usable_ = 0;  // pages up to here may be read and written
  uintptr_t top_ = 0, highest_top_ = 0;
  std::unordered_map<uintptr_t, size_t> blocks_;
  std::map<uintptr_t, size_t> gaps_;
  std::set<std::pair<size_t, uintptr_t>> gaps_by_size_;
  int64_t in_use_ = 0, peak_ = 0;
  std::function<int64_t()> room_;
};

// Never destroyed: tensors of static lifetime are released after main() has returned.
Range& range() {
  static auto* const instance = new Range;
  return *instance;
}

void release(void* data) {
  if (range().holds(reinterpret_cast<uintptr_t>(data))) {
    range().give_back(reinterpret_cast<uintptr_t>(data));
  } else {
    std::free(data);
  }
}

class CpuAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const size_t rounded = rounded_up(bytes, kAlignment);
    void* const data = bytes == 0       ? nullptr
                       : bytes < kSmall ? std::aligned_alloc(kAlignment, rounded)
                                        : range().take(rounded);
    TORCH_CHECK_WITH(OutOfMemoryError, data || bytes == 0, "not enough memory for a tensor of ", bytes, " bytes");
    return {data, data, &release, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }
};

bool install() {
#ifdef __SANITIZE_ADDRESS__
  return false;  // it finds faults at the edges of malloc's blocks only
#else
  if (host::limits_virtual_memory()) return false;  // addresses that are merely reserved would count against it
  // Twice the machine's memory, as gaps cost addresses and nothing else.
  if (!range().reserve(rounded_up(2 * static_cast<size_t>(host::memory_bytes()), kGrowth))) return false;
  range().limit(growable_by_tensors);
  static CpuAllocator allocator;
  constexpr uint8_t kPriority = 1;  // above LibTorch's own
  c10::SetCPUAllocator(&allocator, kPriority);
  return true;
#endif
}

}  // namespace

void use_cpu_allocator() {
  static const bool is_installed = install();
  (void)is_installed;
}

CpuMemory cpu_memory() { return range().memory(); }
void reset_cpu_memory_peak() { range().reset_peak(); }
void limit_cpu_memory(std::function<int64_t()> room) { range().limit(std::move(room)); }
void release_cpu_memory() { range().release(); }

int64_t growable_by_tensors() {
  constexpr int64_t kReserve = 1 << 24;  // small tensors, page tables, and the message that says what is missing
  return host::growable_memory_bytes() - kReserve;
}

}  // namespace gpt::device
