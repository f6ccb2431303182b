// Sums over processes, and parts that are brought together. A thread does it, so that this process can compute something else meanwhile.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "collectives.h"
#include "gpt/distributed/communicator.h"
#include "gpt/distributed/ranks.h"

namespace gpt::distributed {

// Every process adds up its part of each stretch, which the others send to it, and may send the sum to them. A stretch is added when the
// next one is on its way, or at finish(): so all processes call the backend in the same order, whenever they get there.
class Sums {
 public:
  Sums(const Collectives& collectives, const Ranks& ranks, at::Device device);
  ~Sums();
  Sums(const Sums&) = delete;
  Sums& operator=(const Sums&) = delete;

  // As the functions of Communicator.
  void begin_sum(const at::Tensor& x, at::ScalarType wire);
  void begin_sum_of_part(const at::Tensor& x, at::ScalarType wire, const Arrival& arrival, int64_t owner);
  void begin_gather(const at::Tensor& x, int64_t owner);
  std::vector<std::function<void()>> begin_gathers(const std::vector<Gathering>& all);
  void finish();
  void finish_gathers();  // what begin_gathers() has begun is there

  int64_t bytes_sent() const { return bytes_sent_; }
  double seconds_waited() const { return seconds_waited_; }

 private:
  enum class Kind { sum, sum_of_part, gather, end_all };
  // What somebody waits for.
  struct Ticket {
    bool is_there = false;
    std::shared_ptr<c10::Event> done = {};  // on a GPU, which may not have come so far
  };
  // What the thread is told to begin, or to end all that it has begun.
  struct Task {
    Kind kind;
    at::Tensor stretch = {};  // (n), whose values are there from `ready` on
    at::ScalarType wire = at::kFloat;
    std::shared_ptr<c10::Event> ready = {};  // null on a CPU
    Arrival arrival = {};                    // of a part
    int64_t owner = kEach;                   // whose part is all of it
    std::shared_ptr<Ticket> ticket = {};     // null: nobody waits for this one
  };
  // A stretch that is under way. Its memory stays for the next one.
  struct Bucket {
    Kind kind = Kind::sum;
    at::Tensor stretch;
    int64_t owner = kEach;
    // In the type that travels, with a part of the same length for each process, where it has no owner. `sent` may be the stretch itself.
    at::Tensor sent, received;
    at::Tensor own;  // this process's part
    Arrival arrival;
    std::shared_ptr<Ticket> ticket;
    Work exchange, gather;
    struct Buffers {
      at::Tensor sent, received;
    } of_host, of_device;
    Buffers& buffers(const at::Tensor& x) { return x.is_cpu() ? of_host : of_device; }
  };

  void tell_stretch(Kind kind, const at::Tensor& x, at::ScalarType wire, const Arrival& arrival = {},
                    int64_t owner = kEach, std::shared_ptr<Ticket> ticket = {});
  void tell_gather(const at::Tensor& x, int64_t owner, const std::shared_ptr<Ticket>& ticket);
  void tell(Task task);
  void wait_for(const Ticket& ticket);
  void give_out(const std::shared_ptr<Ticket>& ticket);  // may be null
  std::optional<Task> next_task();                       // waits for it; nothing at the end
  void work();
  void run(const Task& task);
  void begin(Bucket& bucket, const Task& task);
  void exchange(Bucket& bucket);
  void gather(Bucket& bucket);
  void broadcast(Bucket& bucket);
  void add(Bucket& bucket);
  void arrive(const Bucket& bucket, const at::Tensor& parts) const;
  void end(Bucket& bucket);
  void end_all();
  void count_part(const Bucket& bucket);
  bool is_of_another(const Bucket& bucket) const { return bucket.owner != kEach && bucket.owner != ranks_.rank; }
  Bucket& bucket(int64_t i) { return buckets_[static_cast<size_t>(i % kStretchesInFlight)]; }

  const Collectives& collectives_;
  const Ranks ranks_;
  const at::Device device_;
  bool is_idle_ = true;  // nothing was begun since finish()
  // The ticket of the last gather that begin_gathers() has begun; null where all are known to be there.
  std::shared_ptr<Ticket> last_of_gathers_;
  double seconds_waited_ = 0;
  std::atomic<int64_t> bytes_sent_ = 0;

  std::array<Bucket, kStretchesInFlight> buckets_;  // the thread's, as the next two are
  int64_t begun_ = 0;                               // stretches since finish()
  std::optional<c10::Stream> stream_;               // of its own; nothing on a CPU

  std::mutex mutex_;  // for what follows
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool is_closing_ = false;
  std::exception_ptr error_;

  std::thread thread_;
};

}  // namespace gpt::distributed
