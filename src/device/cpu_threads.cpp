#include "gpt/device/cpu_threads.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>

namespace gpt {
namespace {

// Waking a thread takes a microsecond or two, for each one that sleeps: too much where there are many. Measured with two.
constexpr unsigned kFewProcessors = 8;

// perf: OPT-7. Threads of libgomp, LibTorch's OpenMP, spin for milliseconds wherever they wait, holding the processor that
// the thread they wait for may need; with another program on the machine, a step took twice as long and more. Its settings
// are read before main, but it spins only while it has no more threads than there are processors. So it gets more: a
// second team, which belongs to a thread that sleeps from then on.
void add_sleeping_team() {
  std::promise<void> started;
  std::thread([&started] {
    constexpr int64_t kEnoughForAllThreads = 1 << 20;
    at::zeros({kEnoughForAllThreads}).add_(1);
    started.set_value();
    for (;;) pause();
  }).detach();
  started.get_future().wait();
}

}  // namespace

void use_cpu_threads(int64_t count) {
  if (count > 0) at::set_num_threads(static_cast<int>(count));
  const bool chosen_by_user = std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT");
  if (at::get_num_threads() > 1 && std::thread::hardware_concurrency() <= kFewProcessors && !chosen_by_user) {
    static std::once_flag once;
    std::call_once(once, add_sleeping_team);
  }
}

}  // namespace gpt
