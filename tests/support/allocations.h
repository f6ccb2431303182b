// What tensors take of the CPU's memory while an object of this class exists, as far as the thread that made it allocates them.
// Meanwhile they come from LibTorch's own allocator, which reports each of them.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace gpt::test {

class Allocations {
 public:
  int64_t peak() const { return count_->peak; }  // bytes above those that were there before
  int64_t left() const { return count_->now; }   // bytes of tensors made meanwhile that are still there

 private:
  struct Count : c10::MemoryReportingInfoBase {
    int64_t now = 0, peak = 0;

    void reportMemoryUsage(void* /*memory*/, int64_t size, size_t /*allocated*/, size_t /*reserved*/,
                           c10::Device device) override {
      if (!device.is_cpu()) return;
      now += size;
      peak = std::max(peak, now);
    }
    bool memoryProfilingEnabled() const override { return true; }
  };

  // Puts an allocator in the place of whatever is there, LibTorch's or cpu_allocator.h's, which has this priority too.
  class InUse {
   public:
    explicit InUse(c10::Allocator* allocator) : before_(c10::GetCPUAllocator()) { use(allocator); }
    ~InUse() { use(before_); }
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

   private:
    static void use(c10::Allocator* allocator) { c10::SetCPUAllocator(allocator, /*priority=*/1); }
    c10::Allocator* before_;
  };

  InUse allocator_{c10::GetDefaultCPUAllocator()};
  std::shared_ptr<Count> count_ = std::make_shared<Count>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, count_};
};

}  // namespace gpt::test
