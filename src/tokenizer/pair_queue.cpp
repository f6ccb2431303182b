#include "pair_queue.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "gpt/core/error.h"

namespace gpt {
namespace {

constexpr int32_t kNone = -1;        // no token begins or ends in this cell
constexpr int64_t kIndexDepth = 32;  // an index holds the pairs down to this fraction of the most frequent one's count
constexpr size_t kPrefetch = 16;     // how far ahead memory is prefetched

// Ordered as pairs are: by left token, then by right one.
uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

PairTable::PairTable(size_t expected)
    : slots_(std::bit_ceil(std::max<size_t>(expected * 2, 2))), shift_(64 - std::countr_zero(slots_.size())) {}

void PairTable::prefetch(uint64_t key) const { __builtin_prefetch(&slots_[home(key)], 1); }

PairTable::Entry& PairTable::slot(uint64_t key) {
  size_t i = home(key);
  while (slots_[i].key != key && slots_[i].key != kFree) i = (i + 1) & (slots_.size() - 1);
  return slots_[i];
}

PairTable::Entry* PairTable::find(uint64_t key) {
  Entry& entry = slot(key);
  return entry.key == key ? &entry : nullptr;
}

PairTable::Entry& PairTable::find_or_insert(uint64_t key) {
  Entry* entry = &slot(key);
  if (entry->key == kFree) {
    if (++size_ * 2 > slots_.size()) grow(), entry = &slot(key);
    entry->key = key;
  }
  return *entry;
}

void PairTable::grow() {
  std::vector<Entry> old(slots_.size() * 2);
  old.swap(slots_);
  --shift_;
  for (const Entry& entry : old) {
    if (entry.key != kFree) slot(entry.key) = entry;
  }
}

void PairQueue::Side::note(int32_t token, uint32_t position, uint32_t count) {
  if (token == kNone) return;
  Neighbour& neighbour = neighbours[token];
  if (neighbour.occurrences++ == 0) seen.push_back(token);
  neighbour.count += count;
  places.emplace_back(token, position);
}

void PairQueue::add_token(size_t bytes) { bytes_.push_back(static_cast<uint32_t>(bytes)); }

void PairQueue::add_piece(std::string_view piece, const std::array<int32_t, 256>& token_of_byte, uint64_t count) {
  if (piece.size() < 2) return;
  constexpr size_t kMost = std::numeric_limits<uint32_t>::max();
  if (cells_.empty()) cells_.push_back({kNone, 0});
  for (; count > 0; count -= std::min(count, kMost)) {  // more than a cell can hold: several equal pieces
    if (kMost - cells_.size() <= piece.size()) {
      throw Error(ExitCode::memory,
                  "BPE training: the distinct pieces of the text exceed 4 GB; train on a part of it");
    }
    for (const char byte : piece) {
      cells_.push_back(
          {token_of_byte[static_cast<unsigned char>(byte)], static_cast<uint32_t>(std::min(count, kMost))});
    }
    cells_.push_back({kNone, 0});
  }
}

template <typename Visit>
void PairQueue::for_each_pair(const PairTable& table, Visit visit) const {
  std::array<Occurrence, kPrefetch> ahead;  // a ring
  size_t seen = 0;
  for (size_t begin = 0, end; begin + 1 < cells_.size(); begin = end) {
    const auto [token, count] = cells_[begin];
    end = begin + (token == kNone ? 1 : bytes_[token]);
    if (token == kNone || cells_[end].token == kNone) continue;
    Occurrence& place = ahead[seen % kPrefetch];
    if (seen >= kPrefetch) visit(place);
    place = {key_of(token, cells_[end].token), static_cast<uint32_t>(begin), count};
    table.prefetch(place.key);
    ++seen;
  }
  for (size_t i = seen - std::min(seen, kPrefetch); i < seen; ++i) visit(ahead[i % kPrefetch]);
}

void PairQueue::build_index() {
  pairs_ = PairTable();
  positions_.clear();
  PairTable all;
  for_each_pair(all, [&all](const Occurrence& occurrence) {
    PairTable::Entry& entry = all.find_or_insert(occurrence.key);
    entry.count += occurrence.count;
    ++entry.size;
  });
  int64_t most = 0;
  all.for_each([&most](const PairTable::Entry& entry) { most = std::max(most, entry.count); });
  threshold_ = std::max(min_count_, most / kIndexDepth);

  size_t frequent = 0, size = 0;
  all.for_each([&](const PairTable::Entry& entry) {
    if (entry.count >= threshold_) ++frequent, size += entry.size;
  });
  pairs_ =
      PairTable(frequent);  // sized at once: pairs come in the order of their hashes, which would pile up in a growing table
  std::vector<Candidate> candidates;
  candidates.reserve(frequent);
  all.for_each([&](const PairTable::Entry& entry) {
    if (entry.count < threshold_) return;
    pairs_.find_or_insert(entry.key) = entry;
    candidates.push_back({entry.count, entry.key});
  });
  all = PairTable();
  heap_ = std::priority_queue<Candidate>({}, std::move(candidates));

  positions_.emplace_back(new uint32_t[size]);
  uint32_t* free = positions_.back().get();
  pairs_.for_each([&free](PairTable::Entry& entry) {
    entry.positions = free;
    free += entry.size;
    entry.size = 0;
  });
  for_each_pair(pairs_, [this](const Occurrence& occurrence) {
    if (PairTable::Entry* entry = pairs_.find(occurrence.key)) entry->positions[entry->size++] = occurrence.position;
  });
}

std::optional<TokenPair> PairQueue::next() {
  while (true) {
    if (heap_.empty()) {
      if (threshold_ == min_count_) return std::nullopt;
      build_index();
      continue;
    }
    const Candidate top = heap_.top();
    heap_.pop();
    const int64_t count = pairs_.find(top.key)->count;
    if (count == top.count) return TokenPair(static_cast<int32_t>(top.key >> 32), static_cast<int32_t>(top.key));
    if (count >= threshold_) heap_.push({count, top.key});
  }
}

void PairQueue::merge(TokenPair pair, int32_t product) {
  left_.neighbours.resize(bytes_.size());
  right_.neighbours.resize(bytes_.size());
  const auto behind = [product](int32_t left) { return key_of(left, product); };
  const auto before = [product](int32_t right) { return key_of(product, right); };

  replace_occurrences(*pairs_.find(key_of(pair.first, pair.second)), pair, product);
  index_products(left_, behind);
  index_products(right_, before);
  lower_counts(pair);
  enqueue_products(left_, behind);
  enqueue_products(right_, before);
}

void PairQueue::replace_occurrences(const PairTable::Entry& occurrences, TokenPair pair, int32_t product) {
  const auto [first, second] = pair;
  const uint32_t first_bytes = bytes_[first], bytes = first_bytes + bytes_[second];
  for (uint32_t i = 0; i < occurrences.size; ++i) {
    if (i + kPrefetch < occurrences.size) __builtin_prefetch(&cells_[occurrences.positions[i + kPrefetch]], 1);
    const uint32_t position = occurrences.positions[i];
    Cell* const cell = &cells_[position];
    // One of the two may have become part of another token; in aaa, merging the first pair removes the second.
    if (cell[0].token != first || cell[first_bytes].token != second) continue;
    cell[first_bytes].token = kNone;
    cell[0].token = cell[bytes - 1].token = product;
    const int32_t before = cell[-1].token;
    left_.note(before, position - (before == kNone ? 0 : bytes_[before]), cell->count);
    right_.note(cell[bytes].token, position, cell->count);
  }
}

// Indexes the pairs of the product with its neighbours, except the rare ones.
template <typename Key>
void PairQueue::index_products(Side& side, Key key_with_product) {
  size_t size = 0;
  for (const int32_t token : side.seen) {
    if (side.neighbours[token].count >= threshold_) size += side.neighbours[token].occurrences;
  }
  if (size > 0) {
    positions_.emplace_back(new uint32_t[size]);
    uint32_t* free = positions_.back().get();
    for (const int32_t token : side.seen) {
      Neighbour& neighbour = side.neighbours[token];
      if (neighbour.count < threshold_) continue;
      PairTable::Entry& entry = pairs_.find_or_insert(key_with_product(token));
      entry.count = neighbour.count;
      entry.positions = neighbour.positions = free;
      entry.size = neighbour.occurrences;
      free += neighbour.occurrences;
    }
    for (const auto& [token, position] : side.places) {
      if (uint32_t*& next = side.neighbours[token].positions) *next++ = position;
    }
  }
  side.places.clear();
}

// The pairs of the neighbours with the parts of the product occur less often now. Where the parts follow each other twice,
// as in xyxy, a neighbour is itself the product, and one of those pairs is that of the product with the next part.
void PairQueue::lower_counts(TokenPair pair) {
  for (const int32_t left : left_.seen) {
    if (PairTable::Entry* entry = pairs_.find(key_of(left, pair.first))) entry->count -= left_.neighbours[left].count;
  }
  for (const int32_t right : right_.seen) {
    if (PairTable::Entry* entry = pairs_.find(key_of(pair.second, right)))
      entry->count -= right_.neighbours[right].count;
  }
}

template <typename Key>
void PairQueue::enqueue_products(Side& side, Key key_with_product) {
  for (const int32_t token : side.seen) {
    if (side.neighbours[token].positions) {
      const uint64_t key = key_with_product(token);
      const int64_t count = pairs_.find(key)->count;
      if (count >= threshold_) heap_.push({count, key});
    }
    side.neighbours[token] = {};
  }
  side.seen.clear();
}

}  // namespace gpt
