#include "gpt/train/memory_watch.h"

#include <algorithm>
#include <utility>

#include "gpt/core/process_memory.h"
#include "gpt/core/surroundings.h"
#include "gpt/device/host.h"

namespace gpt::train {

MemoryWatch::Senses MemoryWatch::of_this_machine() {
  return {.look = [] { return Look{host::shared_memory_bytes(), process_memory::bytes()}; },
          .wait = [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }};
}

MemoryWatch::MemoryWatch(bool watches, Senses senses) : senses_(std::move(senses)) {
  if (watches) thread_ = surroundings::thread_if_possible([this] { look_until_stopped(); });
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

bool MemoryWatch::wait_until_over(const std::function<bool(bool own)>& is_any) {
  for (int second = 0; second < kMostSeconds; ++second) {
    const Look before = senses_.look();
    senses_.wait(std::chrono::seconds(1));
    if (is_any(is_running_out(before, senses_.look()))) continue;
    is_running_out_ = false;
    return true;
  }
  return false;
}

void MemoryWatch::look_until_stopped() {
  Look before = senses_.look();
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, senses_.between_looks, [this] { return is_stopped_; })) {
    const Look now = senses_.look();
    if (is_running_out(before, now) && !is_running_out_) {
      free_when_seen_ = now.free;
      is_running_out_ = true;
    }
    before = now;
  }
}

}  // namespace gpt::train
