// The memory that other programs take while a run trains. A control group, or the machine, that is full does not refuse them
// anything: the kernel ends a process, which is likely to be the largest. A thread looks five times a second, and tells where the
// run should save, and end by itself unless the shortage passes. What is taken faster than that, or within one long micro-step, it cannot
// forestall.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace gpt::train {

class MemoryWatch {
 public:
  // What a look sees: bytes that this process or others may still take, and those that it has.
  struct Look {
    int64_t free = 0, own = 0;
  };
  // How it looks and waits.
  struct Senses {
    std::function<Look()> look;
    std::function<void(std::chrono::milliseconds)> wait;
    std::chrono::milliseconds between_looks{200};
  };
  static Senses of_this_machine();

  explicit MemoryWatch(bool watches, Senses senses = of_this_machine());
  ~MemoryWatch();
  bool is_running_out() const {
    return is_running_out_;
  }  // once it was so, it stays so until wait_until_over() returns true
  int64_t free_when_seen() const { return free_when_seen_; }

  // Where memory is running out: waits until it is not any more, but no longer than so many seconds. Returns whether it has passed.
  // is_any(own): whether memory is still short in any of the processes that wait together.
  static constexpr int kMostSeconds = 10;
  bool wait_until_over(const std::function<bool(bool own)>& is_any);

  // Next to nothing is left, or nothing would be after two more looks in which others take as much as since the one before.
  static bool is_running_out(const Look& before, const Look& now);

 private:
  void look_until_stopped();

  const Senses senses_;
  std::atomic<bool> is_running_out_{false};
  std::atomic<int64_t> free_when_seen_{0};
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace gpt::train
