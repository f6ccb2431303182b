// What tensors take of the CPU's memory while an object of this class exists, as far as the thread that made it allocates them.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace gpt::test {

class Allocations {
 public:
  int64_t peak() const { return count_->peak; }  // bytes above those that were there before

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

  std::shared_ptr<Count> count_ = std::make_shared<Count>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, count_};
};

}  // namespace gpt::test
