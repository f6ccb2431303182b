#include "bpe_merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace gpt::tokenizer {
namespace {

// Up to this many tokens, looking at every pair before each merge is faster than keeping the pairs in a heap.
constexpr size_t kFew = 64;

// A pair as a number, so that the smallest is the leftmost of the lowest rank: the rank, then the place of its left token.
constexpr int kPlaceBits = std::countr_zero(kFew);
constexpr uint64_t kNoPair = ~uint64_t{0};

// perf: OPT-5. Four minima side by side. Numbers of 64 bits keep the compiler from vector instructions, which would wait for
// what has just been written one by one.
uint64_t least_of(const uint64_t* pairs, size_t count) {
  uint64_t a = pairs[0], b = pairs[1], c = pairs[2], d = pairs[3];
  for (size_t i = 4; i < count; i += 4) {
    a = std::min(a, pairs[i]);
    b = std::min(b, pairs[i + 1]);
    c = std::min(c, pairs[i + 2]);
    d = std::min(d, pairs[i + 3]);
  }
  return std::min(std::min(a, b), std::min(c, d));
}

}  // namespace

BpeMerges::BpeMerges(size_t count)
    : low_pairs_(kLow * kLow, kNone),
      buckets_(std::bit_ceil(std::max<size_t>(2 * count / kBucket, 2))),
      shift_(64 - std::countr_zero(buckets_.size())),
      present_(std::bit_ceil(std::max<size_t>(8 * count, 64)) / 64),
      present_shift_(64 - std::countr_zero(64 * present_.size())) {
  for (Bucket& bucket : buckets_) bucket.rules.fill(kFree);
  products_.reserve(count);
}

inline uint64_t BpeMerges::hash_of(uint64_t pair) {
  return pair * 0x9E3779B97F4A7C15u;  // Fibonacci hashing (Knuth, TAOCP 3, 6.4)
}

void BpeMerges::add(int32_t left, int32_t right, int32_t product) {
  const auto rank = static_cast<uint32_t>(products_.size());
  products_.push_back(product);
  are_numbered_ = are_numbered_ && product == products_.front() + static_cast<int32_t>(rank);
  if (both_low(left, right)) {
    low_pairs_[left * kLow + right] = rank;
    return;
  }
  const uint64_t pair = pair_of(left, right), hash = hash_of(pair);
  present_[hash >> present_shift_ >> 6] |= uint64_t{1} << (hash >> present_shift_ & 63);
  for (size_t bucket = hash >> shift_;; bucket = (bucket + 1) & (buckets_.size() - 1)) {
    for (uint64_t& rule : buckets_[bucket].rules) {
      if (rule != kFree && rule >> kRankBits != pair) continue;
      rule = pair << kRankBits | rank;
      return;
    }
  }
}

inline uint32_t BpeMerges::rank_of(int32_t left, int32_t right) const {
  if (both_low(left, right)) return low_pairs_.data()[left * kLow + right];
  const uint64_t pair = pair_of(left, right), hash = hash_of(pair), bit = hash >> present_shift_;
  if ((present_.data()[bit >> 6] >> (bit & 63) & 1) == 0) return kNone;
  for (size_t bucket = hash >> shift_;; bucket = (bucket + 1) & (buckets_.size() - 1)) {
    const Bucket& there = buckets_.data()[bucket];
    uint64_t rank = kNone;  // a rule XOR the pair is just the rank if the pairs are equal
    for (const uint64_t rule : there.rules) rank = std::min(rank, rule ^ pair << kRankBits);
    if (rank != kNone || there.rules.back() == kFree) return static_cast<uint32_t>(rank);
  }
}

void BpeMerges::apply(std::vector<int32_t>& ids, size_t first) const {
  const size_t count = ids.size() - first;
  if (count < 2) return;
  ids.resize(first + (count <= kFew ? apply_to_few(&ids[first], count) : apply_to_many(&ids[first], count)));
}

// perf: OPT-5. Merged tokens leave a hole and nothing moves: one bit per remaining token serves to find neighbours.
size_t BpeMerges::apply_to_few(int32_t* ids, size_t count) const {
  std::array<uint64_t, kFew> array;  // the pair of each token with the next one
  uint64_t* const pairs = array.data();
  const auto look_up = [&](size_t place, size_t next) {
    const uint32_t rank = rank_of(ids[place], ids[next]);
    pairs[place] = rank == kNone ? kNoPair : uint64_t{rank} << kPlaceBits | place;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i, i + 1);
  for (size_t i = count - 1; i < (count + 3) / 4 * 4; ++i) pairs[i] = kNoPair;

  uint64_t left = ~uint64_t{0} >> (kFew - count);
  const auto before = [&](size_t place) { return left & ((uint64_t{1} << place) - 1); };
  const auto behind = [&](size_t place) { return left & (~uint64_t{1} << place); };
  for (uint64_t best; (best = least_of(pairs, count)) != kNoPair;) {
    const size_t place = best & (kFew - 1), merged = std::countr_zero(behind(place));
    ids[place] = product_of(static_cast<uint32_t>(best >> kPlaceBits));
    left &= ~(uint64_t{1} << merged);
    pairs[place] = pairs[merged] = kNoPair;
    if (behind(place) != 0) look_up(place, std::countr_zero(behind(place)));
    if (before(place) != 0) look_up(std::bit_width(before(place)) - 1, place);
  }

  size_t kept = 0;
  for (; left != 0; left &= left - 1) ids[kept++] = ids[std::countr_zero(left)];
  return kept;
}

size_t BpeMerges::apply_to_many(int32_t* ids, size_t count) const {
  struct Part {
    uint32_t previous, next;  // among those left; `count` after the last
    uint32_t rank;            // the rank of the pair with the next one; kNone for those merged away too
  };
  // Rank, position; stale if the part's rank has changed since.
  using Candidate = std::pair<uint32_t, uint32_t>;
  std::vector<Part> parts(count);
  std::vector<Candidate> candidates;
  for (uint32_t i = 0; i < count; ++i) {
    parts[i] = {i - 1, i + 1, i + 1 < count ? rank_of(ids[i], ids[i + 1]) : kNone};
    if (parts[i].rank != kNone) candidates.emplace_back(parts[i].rank, i);
  }
  std::priority_queue queue(std::greater<Candidate>{}, std::move(candidates));
  const auto update = [&](uint32_t i) {
    parts[i].rank = parts[i].next < count ? rank_of(ids[i], ids[parts[i].next]) : kNone;
    if (parts[i].rank != kNone) queue.emplace(parts[i].rank, i);
  };

  while (!queue.empty()) {
    const auto [rank, left] = queue.top();
    queue.pop();
    if (parts[left].rank != rank) continue;
    const uint32_t right = parts[left].next;
    ids[left] = product_of(rank);
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

}  // namespace gpt::tokenizer
