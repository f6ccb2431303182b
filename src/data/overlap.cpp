#include "gpt/data/overlap.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace gpt {
namespace {

constexpr int64_t kWindow = 64, kWindows = 1024;
constexpr uint64_t kBase = 0x9E3779B97F4A7C15u;  // odd, so that no power of it vanishes modulo 2^64

// Hash of ids x0..x63: x0 base^63 + ... + x63, modulo 2^64; +1 so that runs of id 0 count.
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

// The windows that are looked for. Nearly every position of the training tokens is turned away by one bit.
class Wanted {
 public:
  explicit Wanted(const Tokens& validation) : validation_(validation), filter_(size_t{1} << 16) {
    const int64_t positions = validation.size() - kWindow + 1;
    const int64_t count = std::clamp<int64_t>(positions / kWindow, positions > 0 ? 1 : 0, kWindows);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = i * (positions / count);
      const uint64_t hash = hash_at(validation, position);
      windows_.emplace(hash, position);
      filter_[hash >> 48] = true;
    }
    result_.windows = count;
  }

  bool maybe(uint64_t hash) const { return filter_[hash >> 48]; }

  void check(uint64_t hash, const Tokens& train, int64_t position) {
    const auto [first, last] = windows_.equal_range(hash);
    for (auto it = first; it != last;) {
      if (!same_window(validation_, it->second, train, position)) {
        ++it;
        continue;
      }
      if (result_.found++ == 0) result_.validation_position = it->second, result_.train_position = position;
      it = windows_.erase(it);
    }
  }

  const Overlap& result() const { return result_; }

 private:
  const Tokens& validation_;
  std::vector<bool> filter_;
  std::unordered_multimap<uint64_t, int64_t> windows_;
  Overlap result_;
};

template <class Id>
void search(const Tokens& train, Wanted& wanted) {
  const Id* ids = static_cast<const Id*>(train.data());
  uint64_t oldest = 1;  // base^64
  for (int64_t i = 0; i < kWindow; ++i) oldest *= kBase;
  uint64_t hash = hash_at(train, 0);
  for (int64_t position = 0;; ++position) {
    if (wanted.maybe(hash)) wanted.check(hash, train, position);
    if (position + kWindow >= train.size()) return;
    hash = hash * kBase + ids[position + kWindow] + 1 - oldest * (uint64_t{ids[position]} + 1);
  }
}

}  // namespace

Overlap find_overlap(const Tokens& train, const Tokens& validation) {
  Wanted wanted(validation);
  if (train.size() >= kWindow && wanted.result().windows > 0) {
    train.width() == 2 ? search<uint16_t>(train, wanted) : search<uint32_t>(train, wanted);
  }
  return wanted.result();
}

}  // namespace gpt
