// The chunks of an input through all threads: read in turn, worked on side by side, taken in their order.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "document_reader.h"
#include "gpt/core/ordered_prefetcher.h"
#include "gpt/core/processors.h"

namespace gpt::prepare {

// Sets a flag on the way out of a scope.
struct SetAtEnd {
  std::atomic<bool>& flag;
  ~SetAtEnd() { flag = true; }
};

// Calls `work` on the chunks on `threads` threads (0 = all cores), and `take` on this one with the results. `tick` is called
// now and then, and may throw; `stop` is set when it did, for what the reader waits for.
template <class Work, class Take, class Tick>
void for_each_chunk(DocumentReader& reader, int64_t threads, std::atomic<bool>& stop, Work&& work, Take&& take,
                    Tick&& tick) {
  using Result = std::invoke_result_t<Work, Chunk>;
  if (threads == 0) threads = usable_processors();

  // What is the k-th chunk of the input is the pipeline's k-th item.
  stop = false;
  std::mutex mutex;
  std::condition_variable turn;
  int64_t next_to_read = 0;
  bool at_end = false;
  const auto read = [&](int64_t index) -> std::optional<Chunk> {
    std::unique_lock lock(mutex);
    turn.wait(lock, [&] { return next_to_read == index; });
    ++next_to_read;
    // Set first: it stays so where next() throws.
    std::optional<Chunk> chunk;
    if (!std::exchange(at_end, true)) {
      try {
        chunk = reader.next();
      } catch (...) {
        turn.notify_all();
        throw;
      }
      at_end = !chunk;
    }
    turn.notify_all();
    return chunk;
  };
  OrderedPrefetcher<std::optional<Result>> pipeline(threads, 2 * threads, std::numeric_limits<int64_t>::max(),
                                                    [&](int64_t index) -> std::optional<Result> {
                                                      std::optional<Chunk> chunk = read(index);
                                                      if (!chunk) return std::nullopt;
                                                      return work(reader.parsed(std::move(*chunk)));
                                                    });
  const SetAtEnd wake_readers{stop};  // before the pipeline's threads end, which it waits for

  constexpr std::chrono::milliseconds kPatience(100);
  for (;;) {
    tick();
    std::optional<std::optional<Result>> result = pipeline.next(kPatience);
    if (!result) continue;
    if (!*result) break;
    take(std::move(**result));
  }
}

}  // namespace gpt::prepare
