// Calls build(0), build(1), ... on several threads, as far as the system has any, and hands the results out in that order, building at
// most `depth` ahead of what was taken. What build throws comes out of the next() that would have returned its result.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gpt/core/surroundings.h"

namespace gpt {

template <class Item>
class OrderedPrefetcher {
 public:
  // next() may be called `count` times.
  OrderedPrefetcher(int64_t threads, int64_t depth, int64_t count, std::function<Item(int64_t)> build)
      : build_(std::move(build)), count_(count), slots_(depth) {
    for (int64_t i = 0; i < threads; ++i) {
      std::thread thread = surroundings::thread_if_possible([this] { work(); });
      if (thread.joinable()) threads_.push_back(std::move(thread));
    }
  }

  ~OrderedPrefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  OrderedPrefetcher(const OrderedPrefetcher&) = delete;
  OrderedPrefetcher& operator=(const OrderedPrefetcher&) = delete;

  Item next() {
    for (;;) {
      if (std::optional<Item> item = next(std::chrono::hours(1))) return std::move(*item);
    }
  }

  // Nothing when the next item takes longer than `patience`.
  std::optional<Item> next(std::chrono::milliseconds patience) {
    if (threads_.empty()) return build_(taken_++);
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[taken_ % slots_.size()];
    if (!ready_.wait_for(lock, patience, [&slot] { return slot.item || slot.error; })) return std::nullopt;
    Slot result = std::exchange(slot, {});
    ++taken_;
    lock.unlock();
    room_.notify_one();
    if (result.error) std::rethrow_exception(result.error);
    return std::move(result.item);
  }

 private:
  struct Slot {
    std::optional<Item> item;
    std::exception_ptr error;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, [this] { return stop_ || (claimed_ < count_ && claimed_ - taken_ < std::ssize(slots_)); });
      if (stop_) return;
      const int64_t index = claimed_++;
      lock.unlock();
      Slot result;
      try {
        result.item = build_(index);
      } catch (...) { result.error = std::current_exception(); }
      lock.lock();
      slots_[index % slots_.size()] = std::move(result);
      ready_.notify_one();
    }
  }

  const std::function<Item(int64_t)> build_;
  const int64_t count_;
  std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::vector<Slot> slots_;  // item k waits in slot k % depth
  int64_t claimed_ = 0, taken_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace gpt
