#include "gpt/distributed/sum_speed.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "gpt/core/sockets.h"
#include "gpt/distributed/group.h"
#include "sockets.h"

namespace gpt::distributed {
namespace {

// More processes than these share what they reach.
constexpr int64_t kMostThreads = 8;

Ranks rank_of_thread(int64_t rank, int64_t size, const ListeningSocket& listener) {
  Ranks ranks{.rank = rank, .size = size, .local_rank = rank, .local_size = size};
  ranks.address = kLoopback, ranks.port = listener.port;
  if (ranks.is_first()) ranks.listener = listener.fd;
  return ranks;
}

// Seconds that this share of so many times takes at most.
double seconds_of(int times, double share, const std::function<void()>& work) {
  constexpr int kWarmUp = 2;
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUp + times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (i >= kWarmUp) seconds.push_back(taken.count());
  }
  const auto at = seconds.begin() + static_cast<std::ptrdiff_t>(share * times);
  std::nth_element(seconds.begin(), at, seconds.end());
  return *at;
}

// Stretches as long as those of a run, of which several are on their way at the same time. A busy machine makes most short sums wait for a
// core, but not the fastest quarter of them.
SumSpeed time_sums(Communicator& ranks, at::ScalarType wire) {
  constexpr int64_t kShort = 256, kLong = 1 << 20, kStretches = 8;
  constexpr int kTimesShort = 200, kTimesLong = 20;
  const at::Tensor few = at::zeros({kShort}), many = at::zeros({kStretches, kLong});
  const double of_short = seconds_of(kTimesShort, 0.25, [&] { ranks.sum(few, wire); });
  const int64_t sent_before = ranks.bytes_sent();
  int times = 0;
  const double of_long = seconds_of(kTimesLong, 0.5, [&] {
    for (int64_t i = 0; i < kStretches; ++i) ranks.begin_sum(many[i], wire);
    ranks.finish();
    ++times;
  });
  const double sent = static_cast<double>(ranks.bytes_sent() - sent_before) / times;
  return sum_speed_from(of_short, of_long, kStretches, sent, ranks.size());
}

}  // namespace

SumSpeed sum_speed_from(double seconds_of_short, double seconds_of_long, int64_t sums, double bytes_sent,
                        int64_t processes) {
  constexpr double kLeastShare = 0.1;  // of the time of the long ones, whatever pauses the short ones had
  const double messages = static_cast<double>(2 * (processes - 1)),
               of_bytes = std::max(seconds_of_long - static_cast<double>(sums) * seconds_of_short,
                                   kLeastShare * seconds_of_long);
  return {.latency = seconds_of_short / messages, .bytes_per_second = bytes_sent / of_bytes};
}

SumSpeed measure_sum_speed(int64_t processes, at::ScalarType wire) {
  constexpr double kTimeout = 60;
  const int64_t size = std::clamp<int64_t>(processes, 2, kMostThreads);
  const ListeningSocket listener = listen_at(kLoopback);
  const int threads_of_each = at::get_num_threads();
  SumSpeed speed;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(threads_of_each);
        const Group group(rank_of_thread(rank, size, listener), at::kCPU, "", kTimeout);
        const SumSpeed own = time_sums(*group.communicator(), wire);
        if (group.is_first()) speed = own;
      } catch (...) { errors[static_cast<size_t>(rank)] = std::current_exception(); }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  const double share = static_cast<double>(size) / static_cast<double>(std::max(processes, size));
  return {speed.latency / share, speed.bytes_per_second * share};
}

}  // namespace gpt::distributed
