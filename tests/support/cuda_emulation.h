// Runs CUDA kernels on the host, so that their indexing, tails, barriers and reductions are tested without a GPU: blocks
// one after another, the threads of a block as fibers that run until they wait. Include it before the kernel's .cuh.
//
//   emulation::launch({blocks}, {threads}, [&] { some_kernel(out, in, n); });
//
// Stricter than a GPU: a shuffle that reads a lane that takes no part, threads that wait for each other for ever, and
// races (race_detector.h) throw std::logic_error. Threads are resumed in rising and falling order by turns. Shared memory
// keeps the last block's values, as uninitialised memory may. Asynchronous copies are made when they are waited for.
// Not thread-safe.
#pragma once

#include <ucontext.h>
#include <csetjmp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "src/ops/cuda/block_limits.h"
#include "support/race_detector.h"

namespace gpt::emulation {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  unsigned volume() const { return x * y * z; }
};

inline constexpr ops::cuda::BlockLimits kLimitsOfH100{.threads = 2048,
                                                      .shared_memory = 228 << 10,
                                                      .shared_memory_of_block = 227 << 10,
                                                      .reserved = 1 << 10};

// A static variable, as other shared memory is here. What a launch asks for of it holds NaN before; what is beyond must stay as it is.
class DynamicSharedMemory {
 public:
  static constexpr size_t kMost = kLimitsOfH100.shared_memory_of_block;

  explicit DynamicSharedMemory(size_t bytes) : bytes_(bytes) {
    if (bytes > kMost) throw std::logic_error("a launch asks for more shared memory than a GPU has");
    if (bytes > 0) std::fill(memory_.begin(), memory_.end(), kBefore);
  }
  void check() const {
    if (bytes_ > 0 && std::any_of(memory_.begin() + bytes_, memory_.end(), [](auto byte) { return byte != kBefore; }))
      throw std::logic_error("a kernel writes beyond the shared memory that it asked for");
  }
  static void* begin() { return memory_.data(); }

 private:
  static constexpr std::byte kBefore{0xFF};
  alignas(16) static inline std::array<std::byte, kMost> memory_;
  size_t bytes_;
};

struct Thread {
  enum class State { ready, at_block_barrier, at_warp_barrier, done };
  ucontext_t first;  // where its first block begins
  jmp_buf place;     // where it goes on afterwards
  bool has_begun = false;
  Dim3 index;
  unsigned number = 0;  // within the block
  State state = State::ready;
  uint32_t mask = 0;       // lanes awaited at a warp barrier
  uint64_t exchanged = 0;  // what this lane offers to a shuffle
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  std::vector<Copy> copies;  // that it has not waited for
  unsigned lane() const { return number % 32; }
};

class Block {
 public:
  static inline Block* running = nullptr;
  static inline thread_local Block* watched = nullptr;  // the same, while a kernel's own code runs
  Dim3 grid, size, index;
  Thread* thread = nullptr;  // the one that runs now

  // `shows_races`: which takes twice as long.
  Block(Dim3 grid, Dim3 size, std::function<void()> kernel, bool shows_races = true)
      : grid(grid),
        size(size),
        shows_races_(shows_races),
        kernel_(std::move(kernel)),
        threads_(size.volume()),
        stacks_(new std::byte[size.volume() * kStackBytes]) {}

  void run(Dim3 block_index) {
    index = block_index;
    running = this;
    races_.begin_block((index.z * grid.y + index.y) * grid.x + index.x, threads_.size());
    for (unsigned i = 0; i < threads_.size(); ++i) start(threads_[i], i);
    for (bool rising = true; !all(Thread::State::done); rising = !rising) {
      for (unsigned i = 0; i < threads_.size(); ++i) resume(threads_[rising ? i : threads_.size() - 1 - i]);
      if (failure_) std::rethrow_exception(failure_);
      if (races_.race()) throw std::logic_error(*races_.race());
      release();
    }
  }

  void wait_for_block() { wait(Thread::State::at_block_barrier); }

  void wait_for_warp(uint32_t mask) {
    const Unwatched unwatched;
    if (!(mask >> thread->lane() & 1)) throw std::logic_error("a lane waits for a warp that its mask leaves it out of");
    thread->mask = mask;
    wait(Thread::State::at_warp_barrier);
  }

  // What lane `source` of this warp passed to the same call; every lane of `mask` makes it.
  template <class T>
  T shuffle(uint32_t mask, T value, unsigned source) {
    const Unwatched unwatched;
    static_assert(sizeof(T) <= sizeof(uint64_t));
    const unsigned warp = thread->number - thread->lane();
    if (!(mask >> source & 1)) throw std::logic_error("a shuffle reads a lane outside its mask");
    std::memcpy(&thread->exchanged, &value, sizeof value);
    wait_for_warp(mask);
    std::memcpy(&value, &threads_[warp + source].exchanged, sizeof value);
    wait_for_warp(mask);  // before a slot is used again
    return value;
  }

  // The lanes of `mask` that passed the same value to the same call; every lane of it makes it.
  template <class T>
  uint32_t match(uint32_t mask, T value) {
    const Unwatched unwatched;
    static_assert(sizeof(T) <= sizeof(uint64_t));
    thread->exchanged = 0;
    std::memcpy(&thread->exchanged, &value, sizeof value);
    wait_for_warp(mask);
    const unsigned warp = thread->number - thread->lane();
    uint32_t same = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (mask >> lane & 1 && threads_[warp + lane].exchanged == thread->exchanged) same |= 1u << lane;
    }
    wait_for_warp(mask);
    return same;
  }

  template <class T>
  T add_atomically(T* address, T value) {
    const Unwatched unwatched;
    races_.access(thread->number, reinterpret_cast<uintptr_t>(address), sizeof(T), /*writes=*/true, /*is_atomic=*/true);
    return std::exchange(*address, *address + value);
  }

  void copy_later(const Thread::Copy& copy) {
    const Unwatched unwatched;
    thread->copies.push_back(copy);
  }

  void wait_for_copies() {
    const Unwatched unwatched;
    for (const auto& [to, from, bytes] : thread->copies) {
      if (shows_races_) {
        races_.access(thread->number, reinterpret_cast<uintptr_t>(from), bytes, /*writes=*/false);
        races_.access(thread->number, reinterpret_cast<uintptr_t>(to), bytes, /*writes=*/true);
      }
      std::memcpy(to, from, bytes);
    }
    thread->copies.clear();
  }

  void note_access(const void* memory, size_t size, bool writes) {
    const Unwatched unwatched;
    const auto address = reinterpret_cast<uintptr_t>(memory);
    if (!is_own(address)) races_.access(thread->number, address, size, writes);
  }

 private:
  // While the emulation works on its own memory.
  class Unwatched {
   public:
    Unwatched() : before_(std::exchange(watched, nullptr)) {}
    ~Unwatched() { watched = before_; }
    Unwatched(const Unwatched&) = delete;
    Unwatched& operator=(const Unwatched&) = delete;

   private:
    Block* before_;
  };

  // Local variables and the emulation's.
  bool is_own(uintptr_t address) const {
    const auto is_within = [address](const void* begin, size_t bytes) {
      return address - reinterpret_cast<uintptr_t>(begin) < bytes;
    };
    return is_within(stacks_.get(), threads_.size() * kStackBytes) ||
           is_within(threads_.data(), threads_.size() * sizeof(Thread)) || is_within(this, sizeof *this) ||
           is_within(&watched, sizeof watched);
  }

  static constexpr size_t kStackBytes = 64 * 1024;

  void wait(Thread::State barrier) {
    const Unwatched unwatched;
    thread->state = barrier;
    leave();
  }

  // To the scheduler. swapcontext() would also set the mask of signals, by a system call that takes a third of a test's time.
  [[gnu::noinline]] void leave() {
    if (_setjmp(thread->place) == 0) _longjmp(scheduler_, 1);
  }

  // What a fiber runs, which has a thread of each block in turn.
  static void body() {
    while (true) {
      if (running->shows_races_) watched = running;
      try {
        running->kernel_();
      } catch (...) { running->failure_ = std::current_exception(); }
      watched = nullptr;
      running->thread->state = Thread::State::done;
      running->leave();
    }
  }

  void start(Thread& fiber, unsigned number) {
    fiber.number = number;
    fiber.index = {number % size.x, number / size.x % size.y, number / (size.x * size.y)};
    fiber.state = Thread::State::ready;
    if (fiber.has_begun) return;
    getcontext(&fiber.first);
    fiber.first.uc_stack.ss_sp = &stacks_[number * kStackBytes];
    fiber.first.uc_stack.ss_size = kStackBytes;
    makecontext(&fiber.first, &Block::body, 0);
  }

  [[gnu::noinline]] void resume(Thread& fiber) {
    if (fiber.state != Thread::State::ready) return;
    thread = &fiber;
    if (_setjmp(scheduler_) != 0) return;
    if (std::exchange(fiber.has_begun, true)) _longjmp(fiber.place, 1);
    setcontext(&fiber.first);
  }

  bool all(Thread::State state) const {
    for (const Thread& fiber : threads_) {
      if (fiber.state != state && fiber.state != Thread::State::done) return false;
    }
    return true;
  }

  // Wakes the warps, or else the block, whose awaited threads have all arrived.
  void release() {
    if (all(Thread::State::done)) return;
    std::vector<Thread*> woken;
    for (Thread& fiber : threads_) {
      if (fiber.state != Thread::State::at_warp_barrier || !warp_arrived(fiber)) continue;
      woken.push_back(&fiber);
      if (fiber.mask >> fiber.lane() == 1) races_.pass_warp_barrier(fiber.number - fiber.lane(), fiber.mask);
    }
    if (woken.empty() && all(Thread::State::at_block_barrier)) {
      for (Thread& fiber : threads_) {
        if (fiber.state != Thread::State::done) woken.push_back(&fiber);
      }
      races_.pass_block_barrier();
    }
    if (woken.empty()) throw std::logic_error("threads wait for others that never come");
    for (Thread* fiber : woken) fiber->state = Thread::State::ready;
  }

  bool warp_arrived(const Thread& waiting) const {
    const unsigned warp = waiting.number - waiting.lane();
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (!(waiting.mask >> lane & 1)) continue;
      if (warp + lane >= threads_.size()) return false;
      const Thread& other = threads_[warp + lane];
      if (other.state != Thread::State::at_warp_barrier || other.mask != waiting.mask) return false;
    }
    return true;
  }

  const bool shows_races_;
  std::function<void()> kernel_;
  std::vector<Thread> threads_;
  std::unique_ptr<std::byte[]> stacks_;
  jmp_buf scheduler_;
  std::exception_ptr failure_;
  RaceDetector races_;
};

inline void launch(Dim3 grid, Dim3 block, const std::function<void()>& kernel, bool shows_races = true) {
  Block runner(grid, block, kernel, shows_races);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) runner.run({x, y, z});
    }
  }
}

// What src/ops/launch.cuh hands kernels to.
struct Launch {
  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), int64_t blocks, unsigned threads,
                  const Arguments&... arguments) const {
    with_shared_memory(0, kernel, blocks, threads, arguments...);
  }

  template <class... Parameters, class... Arguments>
  void with_shared_memory(int64_t bytes, void (*kernel)(Parameters...), int64_t blocks, unsigned threads,
                          const Arguments&... arguments) const {
    if (blocks == 0) return;
    if (blocks < 0 || blocks > INT32_MAX || threads == 0 || threads > 1024 || threads % 32 != 0) {
      throw std::logic_error("a launch that a GPU refuses, or an incomplete warp");
    }
    // A run launches the same again and again.
    constexpr int kWatched = 4;
    static std::map<std::tuple<void (*)(Parameters...), int64_t, unsigned>, int> launches;
    const bool shows_races = ++launches[{kernel, blocks, threads}] <= kWatched;
    const DynamicSharedMemory memory(bytes);
    launch({static_cast<unsigned>(blocks)}, {threads}, [&] { kernel(arguments...); }, shows_races);
    memory.check();
  }

  template <class Kernel>
  static int64_t blocks_at_once(const Kernel& /*unused*/, unsigned /*threads*/) {
    return multiprocessors();
  }
  static ops::cuda::BlockLimits block_limits() { return kLimitsOfH100; }
  static int64_t multiprocessors() { return 2; }  // so few that a block of a backward pass goes through several rows
};

}  // namespace gpt::emulation

// The device language, as far as kernels here use it. CUDA's own headers may have defined some of it for the host.
#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __shared__
#undef __launch_bounds__
#define __global__ static  // in a build with CUDA the library has the kernels that run on a GPU under the same names
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define gridDim (::gpt::emulation::Block::running->grid)
#define blockDim (::gpt::emulation::Block::running->size)
#define blockIdx (::gpt::emulation::Block::running->index)
#define threadIdx (::gpt::emulation::Block::running->thread->index)

inline void* dynamic_shared_memory() { return ::gpt::emulation::DynamicSharedMemory::begin(); }
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes) {
  gpt::emulation::Block::running->copy_later({to, from, bytes});
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(size_t /*of all*/) { gpt::emulation::Block::running->wait_for_copies(); }
inline void __syncthreads() { gpt::emulation::Block::running->wait_for_block(); }
inline void __syncwarp(uint32_t mask = 0xFFFFFFFF) { gpt::emulation::Block::running->wait_for_warp(mask); }
template <class T>
T __shfl_down_sync(uint32_t mask, T value, unsigned delta, unsigned width = 32) {
  const unsigned lane = gpt::emulation::Block::running->thread->lane();
  return gpt::emulation::Block::running->shuffle(mask, value, lane % width + delta < width ? lane + delta : lane);
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, unsigned lanes) {
  const unsigned lane = gpt::emulation::Block::running->thread->lane();
  return gpt::emulation::Block::running->shuffle(mask, value, lane ^ lanes);
}
template <class T>
uint32_t __match_any_sync(uint32_t mask, T value) {
  return gpt::emulation::Block::running->match(mask, value);
}
inline int __popc(uint32_t bits) { return std::popcount(bits); }
template <class T>
T atomicAdd(T* address, T value) {
  return gpt::emulation::Block::running->add_atomically(address, value);
}
