// Sums over processes. A thread computes them, so that this process can compute something else meanwhile.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "collectives.h"

namespace gpt::distributed {

// Every process adds up its part of each stretch, which the others send to it, and sends the sum to them. A stretch is added and sent back
// when the next one has been sent, or at finish(): so all processes call the backend in the same order, whenever they get there.
class Sums {
 public:
  Sums(const Collectives& collectives, int64_t size, at::Device device);
  ~Sums();
  Sums(const Sums&) = delete;
  Sums& operator=(const Sums&) = delete;

  void begin(const at::Tensor& x, at::ScalarType wire);  // as Communicator::begin_sum()
  void finish();                                         // as Communicator::finish_sums()

  int64_t bytes_sent() const { return bytes_sent_; }
  double seconds_waited() const { return seconds_waited_; }
  static int64_t memory();  // bytes that sums take at most beside their tensors

 private:
  static constexpr size_t kInFlight = 3;

  // What the thread is told: a stretch of a tensor to sum, of the device's values from `ready` on; or, undefined, to end all that it has begun.
  struct Task {
    at::Tensor stretch;  // (n)
    at::ScalarType wire = at::kFloat;
    std::shared_ptr<c10::Event> ready;  // null on a CPU
  };
  // A stretch that is under way. Its memory stays for the next one.
  struct Bucket {
    at::Tensor stretch;
    at::Tensor sent,
        received;  // (n) of the type that travels, n divisible by the number of processes; `sent` may be the stretch itself
    at::Tensor own;  // the sum of this process's part
    at::Tensor send_buffer, receive_buffer;
    Work exchange, gather;
  };

  void tell(Task task);
  std::optional<Task> next_task();  // waits for it; nothing at the end
  void work();
  void run(const Task& task);
  void begin_exchange(Bucket& bucket, const Task& task);
  void add(Bucket& bucket);
  void end(Bucket& bucket);
  void end_all();
  void count_part(const Bucket& bucket);
  Bucket& bucket(int64_t i) { return buckets_[static_cast<size_t>(i) % kInFlight]; }

  const Collectives& collectives_;
  const int64_t size_;
  const at::Device device_;
  bool is_idle_ = true;  // nothing was begun since finish()
  double seconds_waited_ = 0;
  std::atomic<int64_t> bytes_sent_ = 0;

  std::array<Bucket, kInFlight> buckets_;  // the thread's, as the next two are
  int64_t begun_ = 0;                      // stretches since finish()
  std::optional<c10::Stream> stream_;      // of its own; nothing on a CPU

  std::mutex mutex_;  // for what follows
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool has_ended_all_ = false, is_closing_ = false;
  std::exception_ptr error_;
  std::shared_ptr<c10::Event> done_;

  std::thread thread_;
};

}  // namespace gpt::distributed
