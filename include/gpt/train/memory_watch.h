// The memory that other programs take while a run trains. A control group, or the machine, that is full does not refuse them
// anything: the kernel ends a process, which is likely to be the largest. A thread looks five times a second, and tells where the
// run should save and end by itself. What is taken faster than that, or within one long micro-step, it cannot forestall.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace gpt {

class MemoryWatch {
 public:
  explicit MemoryWatch(bool watches);
  ~MemoryWatch();
  bool is_running_out() const { return is_running_out_; }  // once it was so, it stays so

  // What a look sees: bytes that this process or others may still take, and those that it has.
  struct Look {
    int64_t free = 0, own = 0;
  };
  // Next to nothing is left, or nothing would be after two more looks in which others take as much as since the one before.
  static bool is_running_out(const Look& before, const Look& now);

 private:
  void look_until_stopped();

  std::atomic<bool> is_running_out_{false};
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace gpt
