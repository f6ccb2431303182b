#include "gpt/data/overlap.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "gpt/core/processors.h"

namespace gpt::data {
namespace {

constexpr int64_t kWindow = 64, kWindows = 1024;
constexpr uint64_t kBase = 0x9E3779B97F4A7C15u;  // odd, so that no power of it vanishes modulo 2^64

// Hash of ids x0..x63: (x0 + 1) base^63 + ... + (x63 + 1), modulo 2^64; + 1 so that runs of id 0 count.
uint64_t hash_at(const Tokens& tokens, int64_t position) {
  uint64_t hash = 0;
  for (int64_t i = 0; i < kWindow; ++i) hash = hash * kBase + static_cast<uint32_t>(tokens[position + i]) + 1;
  return hash;
}

bool same_window(const Tokens& a, int64_t at_a, const Tokens& b, int64_t at_b) {
  for (int64_t i = 0; i < kWindow; ++i) {
    if (a[at_a + i] != b[at_b + i]) return false;
  }
  return true;
}

// The windows that are looked for, by several threads. Nearly every position of the training tokens is turned away by one bit.
class Wanted {
 public:
  explicit Wanted(const Tokens& validation) : validation_(validation), filter_(size_t{1} << (kFilterBits - 6)) {
    const int64_t positions = validation.size() - kWindow + 1;
    const int64_t count = std::clamp<int64_t>(positions / kWindow, positions > 0 ? 1 : 0, kWindows);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = i * (positions / count);
      windows_.push_back({hash_at(validation, position), position});
    }
    std::sort(windows_.begin(), windows_.end(), [](const Window& a, const Window& b) { return a.hash < b.hash; });
    for (const Window& window : windows_) filter_[word(window.hash)] |= bit(window.hash);
    result_.windows = count;
  }

  bool maybe(uint64_t hash) const { return filter_[word(hash)].load(std::memory_order_relaxed) & bit(hash); }

  void check(uint64_t hash, const Tokens& train, int64_t position) {
    const auto before = [](const Window& window, uint64_t value) { return window.hash < value; };
    auto window = std::lower_bound(windows_.begin(), windows_.end(), hash, before);
    if (window == windows_.end() || window->hash != hash) return;
    const std::lock_guard lock(mutex_);
    for (; window != windows_.end() && window->hash == hash; ++window) {
      if (window->found || !same_window(validation_, window->position, train, position)) continue;
      window->found = true;
      if (result_.found++ > 0 && position >= result_.train_position) continue;
      result_.validation_position = window->position;
      result_.train_position = position;
    }
    forget(hash);
  }

  const Overlap& result() const { return result_; }

 private:
  struct Window {
    uint64_t hash;
    int64_t position;
    bool found = false;
  };
  static constexpr int kFilterBits = 17;  // 16 KB
  static size_t word(uint64_t hash) { return hash >> (64 - kFilterBits + 6); }
  static uint64_t bit(uint64_t hash) { return uint64_t{1} << (hash >> (64 - kFilterBits) & 63); }

  // A bit all of whose windows were found turns away from now on: what is repeated without end is not compared without end.
  void forget(uint64_t hash) {
    for (const Window& window : windows_) {
      if (!window.found && word(window.hash) == word(hash) && bit(window.hash) == bit(hash)) return;
    }
    filter_[word(hash)] &= ~bit(hash);
  }

  const Tokens& validation_;
  std::vector<Window> windows_;  // by hash; `found` is guarded by the mutex
  std::vector<std::atomic<uint64_t>> filter_;
  std::mutex mutex_;
  Overlap result_;
};

// The positions from `begin` to `end`. perf: a hash depends on the one before, so that one chain waits for its multiplication;
// four chains side by side do not.
template <class Id>
void search(const Tokens& train, int64_t begin, int64_t end, Wanted& wanted) {
  constexpr int kChains = 4;
  const Id* ids = static_cast<const Id*>(train.data());
  uint64_t oldest = 1;  // base^64
  for (int64_t i = 0; i < kWindow; ++i) oldest *= kBase;
  const int64_t length = (end - begin) / kChains;
  for (int64_t rest = begin + kChains * length; rest < end; ++rest) wanted.check(hash_at(train, rest), train, rest);
  if (length == 0) return;

  const Id* at[kChains];
  uint64_t hash[kChains];
  for (int c = 0; c < kChains; ++c) {
    at[c] = ids + begin + c * length;
    hash[c] = hash_at(train, begin + c * length);
  }
  for (int64_t i = 0;; ++i) {
    bool any = false;
    for (int c = 0; c < kChains; ++c) any |= wanted.maybe(hash[c]);
    for (int c = 0; any && c < kChains; ++c) wanted.check(hash[c], train, begin + c * length + i);
    if (i + 1 == length) return;
    for (int c = 0; c < kChains; ++c) {
      hash[c] = hash[c] * kBase + at[c][i + kWindow] + 1 - oldest * (uint64_t{at[c][i]} + 1);
    }
  }
}

}  // namespace

Overlap find_overlap(const Tokens& train, const Tokens& validation, const std::function<void(int64_t)>& reached) {
  constexpr int64_t kBlock = 1 << 20;  // a millisecond, and from a slow disk still a fraction of a second
  Wanted wanted(validation);
  const int64_t positions = train.size() - kWindow + 1;
  if (positions <= 0 || wanted.result().windows == 0) return wanted.result();

  std::atomic<int64_t> next = 0;
  const auto search_block = [&] {
    const int64_t begin = next.fetch_add(kBlock);
    if (begin >= positions) return false;
    const int64_t end = std::min(begin + kBlock, positions);
    train.width() == 2 ? search<uint16_t>(train, begin, end, wanted) : search<uint32_t>(train, begin, end, wanted);
    return true;
  };
  std::vector<std::jthread> helpers;
  const int64_t threads = std::min(usable_processors(), positions / kBlock);
  for (int64_t i = 1; i < threads; ++i) {
    helpers.emplace_back([&](const std::stop_token& stop) {
      while (!stop.stop_requested() && search_block()) {}
    });
  }
  while (search_block()) {
    if (reached) reached(std::min(next.load(), positions));
  }
  for (std::jthread& helper : helpers) helper.join();
  if (reached) reached(positions);
  return wanted.result();
}

}  // namespace gpt::data
