#include "gpt/distributed/sum_speed.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <exception>
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

// Bytes a second that this process sends.
double time_sums(Communicator& ranks, at::ScalarType wire) {
  constexpr int64_t kValues = 2 << 20;
  constexpr int kWarmUp = 2, kTimes = 20;
  const at::Tensor x = at::zeros({kValues});
  const auto sum_up = [&](int times) {
    for (int i = 0; i < times; ++i) ranks.sum(x, wire);
  };
  sum_up(kWarmUp);
  const int64_t sent_before = ranks.bytes_sent();
  const auto begin = std::chrono::steady_clock::now();
  sum_up(kTimes);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(ranks.bytes_sent() - sent_before) / seconds.count();
}

}  // namespace

double measure_sum_speed(int64_t processes, at::ScalarType wire) {
  constexpr double kTimeout = 60;
  const int64_t size = std::clamp<int64_t>(processes, 2, kMostThreads);
  const ListeningSocket listener = listen_at(kLoopback);
  const int threads_of_each = at::get_num_threads();
  double speed = 0;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(threads_of_each);
        const Group group(rank_of_thread(rank, size, listener), at::kCPU, "", kTimeout);
        const double own = time_sums(*group.communicator(), wire);
        if (group.is_first()) speed = own;
      } catch (...) { errors[static_cast<size_t>(rank)] = std::current_exception(); }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return speed * static_cast<double>(size) / static_cast<double>(std::max(processes, size));
}

}  // namespace gpt::distributed
