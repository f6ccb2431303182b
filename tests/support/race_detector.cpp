#include "support/race_detector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "support/cuda_emulation.h"

// Between them lie the program's own variables.
extern "C" char __data_start, _end;

namespace gpt::emulation {
namespace {

// What a kernel declares __shared__ is a variable of the program under emulation, and each block has its own on a GPU.
bool is_shared(uintptr_t address) {
  return address >= reinterpret_cast<uintptr_t>(&__data_start) && address < reinterpret_cast<uintptr_t>(&_end);
}

}  // namespace

void RaceDetector::begin_block(uint32_t block, size_t threads) {
  block_ = block, epoch_ = 0;
  known_.assign(threads, {});
  for (size_t i = 0; i < threads; ++i) known_[i][i % kLanes] = 1;
}

// All of them know what each of them knew, and what comes next nobody knows yet.
void RaceDetector::pass_warp_barrier(uint32_t first_thread, uint32_t mask) {
  Clocks all{};
  const auto for_lanes = [&](const auto& work) {
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      if (mask >> lane & 1) work(known_.at(first_thread + lane), lane);
  };
  for_lanes([&](const Clocks& known, uint32_t) {
    for (uint32_t i = 0; i < kLanes; ++i) all[i] = std::max(all[i], known[i]);
  });
  for_lanes([&](Clocks& known, uint32_t lane) {
    known = all;
    ++known[lane];
  });
}

RaceDetector::Word& RaceDetector::word_at(uintptr_t address) {
  if (const uintptr_t page = address / kPage; !page_ || page != last_page_) {
    std::unique_ptr<Page>& entry = pages_[page];
    if (!entry) entry = std::make_unique<Page>();
    last_page_ = page, page_ = entry.get();
  }
  return (*page_)[address % kPage / kWord];
}

bool RaceDetector::is_before(const Access& earlier, const Access& now) const {
  if (earlier.block != now.block) return false;
  if (earlier.thread == now.thread || earlier.epoch < now.epoch) return true;
  return earlier.thread / kLanes == now.thread / kLanes && known_[now.thread][earlier.thread % kLanes] >= earlier.clock;
}

void RaceDetector::compare(const Access& earlier, bool wrote, const Access& now, bool writes, uintptr_t address) {
  if (race_ || !(earlier.bytes & now.bytes) || (!wrote && !writes) || (earlier.is_atomic && now.is_atomic)) return;
  if (is_shared(address) && earlier.block != now.block) return;
  if (is_before(earlier, now)) return;
  const auto said = [](const Access& access, bool writes) {
    return fmt::format("thread {} of block {} {}", access.thread, access.block, writes ? "writes" : "reads");
  };
  race_ = fmt::format("a race for {} memory: {} and {} the same bytes, and nothing orders them",
                      is_shared(address) ? "shared" : "global", said(earlier, wrote), said(now, writes));
}

void RaceDetector::access(uint32_t thread, uintptr_t address, size_t size, bool writes, bool is_atomic) {
  for (const uintptr_t end = address + size; address < end;) {
    const uintptr_t of_word = address % kWord, count = std::min(kWord - of_word, end - address);
    const Access now{
        block_, static_cast<uint16_t>(thread),  static_cast<uint8_t>(((1u << count) - 1) << of_word), is_atomic,
        epoch_, known_[thread][thread % kLanes]};
    Word& word = word_at(address);
    compare(word.write, true, now, writes, address);
    if (writes) {
      compare(word.read, false, now, writes, address);
      compare(word.other_read, false, now, writes, address);
      word.write = now;
    } else {
      if (word.read.thread != thread || word.read.block != block_) word.other_read = word.read;
      word.read = now;
    }
    address += count;
  }
}

}  // namespace gpt::emulation

#ifdef GPT_SHOWS_RACES
// What -fsanitize=thread calls, in GCC and in Clang. The host's part of a file with kernels counts references atomically.
namespace {

using gpt::emulation::Block;

[[gnu::noinline]] void note_access(const void* address, size_t size, bool writes) {
  Block::watched->note_access(address, size, writes);
}

// Most code is not watched, so that this much of it is part of what the compiler calls.
[[gnu::always_inline]] inline void note(const void* address, size_t size, bool writes) {
  if (Block::watched) [[unlikely]]
    note_access(address, size, writes);
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses)
#define GPT_ACCESSES(size)                                                        \
  void __tsan_read##size(void* address) { note(address, size, false); }           \
  void __tsan_write##size(void* address) { note(address, size, true); }           \
  void __tsan_unaligned_read##size(void* address) { note(address, size, false); } \
  void __tsan_unaligned_write##size(void* address) { note(address, size, true); }

#define GPT_FETCH(bits, type, name)                                            \
  type __tsan_atomic##bits##_##name(volatile type* address, type value, int) { \
    return __atomic_##name(address, value, __ATOMIC_SEQ_CST);                  \
  }

#define GPT_EXCHANGE_IF(bits, type, name, weak)                                                                     \
  int __tsan_atomic##bits##_compare_exchange_##name(volatile type* address, type* expected, type value, int, int) { \
    return __atomic_compare_exchange_n(address, expected, value, weak, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
  }

#define GPT_ATOMICS(bits, type)                                                  \
  type __tsan_atomic##bits##_load(const volatile type* address, int) {           \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                           \
  }                                                                              \
  void __tsan_atomic##bits##_store(volatile type* address, type value, int) {    \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                          \
  }                                                                              \
  type __tsan_atomic##bits##_exchange(volatile type* address, type value, int) { \
    return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                \
  }                                                                              \
  GPT_FETCH(bits, type, fetch_add)                                               \
  GPT_FETCH(bits, type, fetch_sub)                                               \
  GPT_FETCH(bits, type, fetch_and)                                               \
  GPT_FETCH(bits, type, fetch_or)                                                \
  GPT_EXCHANGE_IF(bits, type, strong, false)                                     \
  GPT_EXCHANGE_IF(bits, type, weak, true)

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void* /*unused*/) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** /*address*/, void* /*value*/) {}
void __tsan_vptr_read(void** /*address*/) {}
void __tsan_read_range(void* address, unsigned long size) { note(address, size, false); }
void __tsan_write_range(void* address, unsigned long size) { note(address, size, true); }
void* __tsan_memset(void* to, int value, size_t size) {
  note(to, size, true);
  return std::memset(to, value, size);
}
void* __tsan_memcpy(void* to, const void* from, size_t size) {
  note(from, size, false), note(to, size, true);
  return std::memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, size_t size) {
  note(from, size, false), note(to, size, true);
  return std::memmove(to, from, size);
}
GPT_ACCESSES(1)
GPT_ACCESSES(2)
GPT_ACCESSES(4)
GPT_ACCESSES(8)
GPT_ACCESSES(16)
GPT_ATOMICS(8, uint8_t)
GPT_ATOMICS(16, uint16_t)
GPT_ATOMICS(32, uint32_t)
GPT_ATOMICS(64, uint64_t)
}
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses)
#endif
