#include "bpe_merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <queue>
#include <utility>

namespace gpt {
namespace {

// Up to so many tokens, looking at every pair before each merge is quicker than keeping the pairs in a heap.
constexpr size_t kFew = 64;

}  // namespace

BpeMerges::BpeMerges(size_t count)
    : low_pairs_(kLow * kLow),
      slots_(std::bit_ceil(std::max<size_t>(2 * count, 2))),
      shift_(64 - std::countr_zero(slots_.size())) {}

inline size_t BpeMerges::slot_of(uint64_t pair) const {
  size_t slot = (pair ^ pair >> 29) * 0x9E3779B97F4A7C15u >> shift_;  // Fibonacci hashing (Knuth, TAOCP 3, 6.4)
  while (slots_[slot].pair != pair && slots_[slot].pair != kFree) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void BpeMerges::add(int32_t left, int32_t right, Rule rule) {
  if (both_low(left, right)) {
    low_pairs_[left * kLow + right] = rule;
  } else {
    const uint64_t pair = pair_of(left, right);
    slots_[slot_of(pair)] = {pair, rule};
  }
}

inline BpeMerges::Rule BpeMerges::find(int32_t left, int32_t right) const {
  if (both_low(left, right)) return low_pairs_[left * kLow + right];
  return slots_[slot_of(pair_of(left, right))].rule;
}

void BpeMerges::apply(std::vector<int32_t>& ids, size_t first) const {
  const size_t count = ids.size() - first;
  if (count < 2) return;
  ids.resize(first + (count <= kFew ? apply_to_few(&ids[first], count) : apply_to_many(&ids[first], count)));
}

size_t BpeMerges::apply_to_few(int32_t* ids, size_t count) const {
  std::array<uint32_t, kFew> ranks;  // of token i with the next one
  std::array<int32_t, kFew> products;
  const auto look_up = [&](size_t i) {
    const Rule rule = find(ids[i], ids[i + 1]);
    ranks[i] = rule.rank;
    products[i] = rule.product;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    const size_t best = std::min_element(ranks.begin(), ranks.begin() + (count - 1)) - ranks.begin();
    if (ranks[best] == kNone) break;
    ids[best] = products[best];
    std::copy(ids + best + 2, ids + count, ids + best + 1);
    --count;
    // Entry best + 1 was that of the token merged away; those behind it move up.
    if (best + 1 < count) {
      std::copy(ranks.begin() + best + 2, ranks.begin() + count, ranks.begin() + best + 1);
      std::copy(products.begin() + best + 2, products.begin() + count, products.begin() + best + 1);
      look_up(best);
    }
    if (best > 0) look_up(best - 1);
  }
  return count;
}

size_t BpeMerges::apply_to_many(int32_t* ids, size_t count) const {
  struct Part {
    size_t previous, next;  // among those left; `count` behind the last
    uint32_t rank;          // of the pair with the next one; kNone for those merged away too
  };
  using Candidate = std::pair<uint32_t, size_t>;  // rank, position; out of date where the part's rank is another by now
  std::vector<Part> parts(count);
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < count; ++i) {
    parts[i] = {i - 1, i + 1, i + 1 < count ? find(ids[i], ids[i + 1]).rank : kNone};
    if (parts[i].rank != kNone) candidates.emplace_back(parts[i].rank, i);
  }
  std::priority_queue queue(std::greater<Candidate>{}, std::move(candidates));
  const auto update = [&](size_t i) {
    parts[i].rank = parts[i].next < count ? find(ids[i], ids[parts[i].next]).rank : kNone;
    if (parts[i].rank != kNone) queue.emplace(parts[i].rank, i);
  };

  while (!queue.empty()) {
    const auto [rank, left] = queue.top();
    queue.pop();
    if (parts[left].rank != rank) continue;
    const size_t right = parts[left].next;
    ids[left] = find(ids[left], ids[right]).product;
    parts[left].next = parts[right].next;
    parts[right].rank = kNone;
    if (parts[left].next < count) parts[parts[left].next].previous = left;
    update(left);
    if (left > 0) update(parts[left].previous);
  }

  size_t kept = 0;
  for (size_t i = 0; i < count; i = parts[i].next) ids[kept++] = ids[i];
  return kept;
}

}  // namespace gpt
