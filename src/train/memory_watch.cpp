#include "gpt/train/memory_watch.h"

#include <algorithm>
#include <chrono>

#include "gpt/core/process_memory.h"
#include "gpt/device/host.h"

namespace gpt {
namespace {

MemoryWatch::Look look() { return {host::shared_memory_bytes(), process_memory::bytes()}; }

}  // namespace

MemoryWatch::MemoryWatch(bool watches) {
  if (watches) thread_ = std::thread([this] { look_until_stopped(); });
}

MemoryWatch::~MemoryWatch() {
  {
    std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool MemoryWatch::is_running_out(const Look& before, const Look& now) {
  constexpr int64_t kLeast = 4 << 20;  // a checkpoint is written from where its tensors are
  const int64_t taken_by_others = std::max<int64_t>(0, (before.free + before.own) - (now.free + now.own));
  return now.free < kLeast + 2 * taken_by_others;
}

void MemoryWatch::look_until_stopped() {
  constexpr std::chrono::milliseconds kBetweenLooks(200);
  Look before = look();
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, kBetweenLooks, [this] { return is_stopped_; })) {
    const Look now = look();
    if (is_running_out(before, now)) is_running_out_ = true;
    before = now;
  }
}

}  // namespace gpt
