#include "pair_queue.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "gpt/core/error.h"
#include "gpt/tokenizer/bpe_model.h"

namespace gpt::tokenizer {
namespace {

constexpr int64_t kIndexDepth = 32;  // an index holds the pairs down to this fraction of the most frequent one's count
constexpr size_t kPrefetch = 16;     // how far ahead memory is prefetched
constexpr uint64_t kLastKey = std::numeric_limits<uint64_t>::max();

// Counts in eleven bits: below 1024 as they are, above with six significant bits, up to 63 << 36.
constexpr uint64_t count_of(uint32_t code) {
  return code < 1024 ? code : uint64_t{32 + (code & 31)} << ((code >> 5) - 27);
}

// The code of the greatest count that has one and is not above `count`.
constexpr uint32_t code_below(uint64_t count) {
  if (count < 1024) return static_cast<uint32_t>(count);
  const int shift = std::min(static_cast<int>(std::bit_width(count)) - 6, 36);
  return static_cast<uint32_t>(shift + 27) << 5 | (std::min<uint64_t>(count >> shift, 63) & 31);
}

static_assert(count_of(1024) == 1024 && count_of(2047) == uint64_t{63} << 36);
static_assert(code_below(1055) == 1024 && code_below(1056) == 1025 && code_below(~uint64_t{0}) == 2047);

}  // namespace

// Part of all pairs, by the low bits of a hash that has nothing to do with that of the table.
struct PairQueue::HashPart {
  uint32_t bits = 0, mask = 0;

  bool holds(uint64_t key) const { return (key * 0xD6E8FEB86659FD93 >> 32 & mask) == bits; }

  // Keeps one half and returns the other.
  HashPart split() {
    const uint32_t bit = mask + 1;
    mask |= bit;
    return {bits | bit, mask};
  }
};

void PairQueue::Side::note(uint32_t token, uint32_t position, int64_t count) {
  if (token == kNone) return;
  Neighbour& neighbour = neighbours[token];
  if (neighbour.occurrences++ == 0) seen.push_back(token);
  neighbour.count += count;
  places.emplace_back(token, position);
}

void PairQueue::add_token(size_t bytes) { bytes_.push_back(static_cast<uint32_t>(bytes)); }

void PairQueue::add_piece(std::string_view piece, const std::array<int32_t, 256>& token_of_byte, uint64_t count) {
  static_assert(BpeModel::kMostTokens <= kNone);
  if (piece.size() < 2) return;
  if (cells_.empty()) cells_.push_back({kNone, 0});
  while (count > 0) {  // several equal pieces where the count has no code
    if (std::numeric_limits<uint32_t>::max() - cells_.size() <= piece.size()) {
      throw Error(ExitCode::memory, "BPE training: the distinct pieces of the text exceed 4 GB; train on a part of it");
    }
    const uint32_t code = code_below(count);
    count -= count_of(code);
    for (const char byte : piece) {
      cells_.push_back({static_cast<uint32_t>(token_of_byte[static_cast<unsigned char>(byte)]), code});
    }
    cells_.push_back({kNone, 0});
  }
}

// Visits the occurrences of the pairs in `part`, which may become smaller meanwhile, and prefetches their entries of `table`.
template <typename Visit>
void PairQueue::for_each_pair(const PairTable& table, const HashPart& part, Visit visit) const {
  std::array<Occurrence, kPrefetch> ahead;  // a ring
  size_t seen = 0;
  for (size_t begin = 0, end; begin + 1 < cells_.size(); begin = end) {
    const auto [token, count] = cells_[begin];
    end = begin + (token == kNone ? 1 : bytes_[token]);
    if (token == kNone || cells_[end].token == kNone) continue;
    const uint64_t key = key_of(token, cells_[end].token);
    if (!part.holds(key)) continue;
    Occurrence& place = ahead[seen % kPrefetch];
    if (seen >= kPrefetch) visit(place);
    place = {key, static_cast<uint32_t>(begin), static_cast<int64_t>(count_of(count))};
    table.prefetch(key);
    ++seen;
  }
  for (size_t i = seen - std::min(seen, kPrefetch); i < seen; ++i) visit(ahead[i % kPrefetch]);
}

// Calls visit(table) for all pairs, a part of them at a time: as many as a table may hold.
template <typename Visit>
void PairQueue::count_pairs(Visit visit) const {
  std::vector<HashPart> parts(1);
  while (!parts.empty()) {
    HashPart part = parts.back();
    parts.pop_back();
    PairTable table;
    for_each_pair(table, part, [&](const Occurrence& occurrence) {
      if (!part.holds(occurrence.key)) return;
      PairTable::Entry& entry = table.find_or_insert(occurrence.key);
      entry.count += occurrence.count;
      ++entry.size;
      while (table.size() > most_pairs()) {
        parts.push_back(part.split());
        table.keep_if([&part](uint64_t key) { return part.holds(key); });
      }
    });
    visit(table);
  }
}

void PairQueue::build_index() {
  drop_index();
  const std::vector<PairTable::Entry> frequent = frequent_pairs();
  is_complete_ = threshold_ == Candidate{min_count_, kLastKey};
  pairs_ = PairTable(frequent.size());
  std::vector<Candidate> candidates;
  candidates.reserve(frequent.size());
  for (const PairTable::Entry& entry : frequent) {
    pairs_.find_or_insert(entry.key) = entry;
    candidates.push_back({entry.count, entry.key});
  }
  heap_ = std::priority_queue<Candidate>({}, std::move(candidates));
  list_occurrences();
}

void PairQueue::drop_index() {
  pairs_ = PairTable();
  heap_ = {};
  listed_ = 0;
  is_complete_ = false;
}

// The pairs that the index is to hold. Sets the threshold.
std::vector<PairTable::Entry> PairQueue::frequent_pairs() {
  std::vector<PairTable::Entry> frequent;
  threshold_ = {min_count_, kLastKey};
  count_pairs([&](PairTable& part) {
    int64_t most = 0;
    part.for_each([&most](const PairTable::Entry& entry) { most = std::max(most, entry.count); });
    threshold_ = std::max(threshold_, Candidate{most / kIndexDepth, kLastKey});
    part.for_each([&](const PairTable::Entry& entry) {
      if (is_frequent({entry.count, entry.key})) frequent.push_back(entry);
    });
    keep_what_fits(frequent);
  });
  return frequent;
}

// Leaves half of the room for what the merges add. Raises the threshold where more pairs have reached it.
void PairQueue::keep_what_fits(std::vector<PairTable::Entry>& pairs) {
  std::erase_if(pairs, [this](const PairTable::Entry& entry) { return !is_frequent({entry.count, entry.key}); });
  size_t kept = 0, positions = 0;
  const auto fits_next = [&] {
    positions += is_dense(pairs[kept]) ? 0 : pairs[kept].size;
    return kept < most_pairs() / 2 && positions <= most_positions() / 8 * 7;
  };
  while (kept < pairs.size() && fits_next()) ++kept;
  if (kept == pairs.size()) return;

  std::sort(pairs.begin(), pairs.end(), [](const PairTable::Entry& a, const PairTable::Entry& b) {
    return Candidate{b.count, b.key} < Candidate{a.count, a.key};
  });
  kept = positions = 0;
  while (fits_next()) ++kept;  // one at least
  pairs.resize(kept);
  threshold_ = {pairs.back().count, pairs.back().key};
}

void PairQueue::list_occurrences() {
  if (!positions_) positions_ = std::make_unique_for_overwrite<uint32_t[]>(most_positions());
  pairs_.for_each([this](PairTable::Entry& entry) {
    if (is_dense(entry)) return;
    entry.first = static_cast<uint32_t>(listed_);
    listed_ += entry.size;
    entry.size = 0;
  });
  for_each_pair(pairs_, HashPart(), [this](const Occurrence& occurrence) {
    PairTable::Entry* const entry = pairs_.find(occurrence.key);
    if (entry && entry->first != PairTable::Entry::kUnlisted)
      positions_[entry->first + entry->size++] = occurrence.position;
  });
}

std::optional<TokenPair> PairQueue::next() {
  while (true) {
    if (heap_.empty()) {
      if (is_complete_) return std::nullopt;
      build_index();
      if (heap_.empty()) return std::nullopt;
    }
    const Candidate top = heap_.top();
    heap_.pop();
    const int64_t count = pairs_.find(top.key)->count;
    if (count == top.count) return pair_of(top.key);
    if (is_frequent({count, top.key})) heap_.push({count, top.key});
  }
}

void PairQueue::merge(TokenPair pair, int32_t product) {
  const PairTable::Entry occurrences = *pairs_.find(key_of(pair.first, pair.second));
  if (occurrences.first == PairTable::Entry::kUnlisted) {
    replace_all(pair, product);
    return drop_index();
  }
  left_.neighbours.resize(bytes_.size());
  right_.neighbours.resize(bytes_.size());
  const auto behind = [product](int32_t left) { return key_of(left, product); };
  const auto before = [product](int32_t right) { return key_of(product, right); };

  replace_listed(occurrences, pair, product);
  const bool fits_left = index_products(left_, behind), fits_right = index_products(right_, before);
  lower_counts(pair);
  enqueue_products(left_, behind);
  enqueue_products(right_, before);
  if (!fits_left || !fits_right) drop_index();
}

// Goes from one end of the text to the other.
void PairQueue::replace_all(TokenPair pair, uint32_t product) {
  const uint32_t first = pair.first, second = pair.second;
  for (size_t begin = 0, end; begin + 1 < cells_.size(); begin = end) {
    const uint32_t token = cells_[begin].token;
    end = begin + (token == kNone ? 1 : bytes_[token]);
    if (token != first || cells_[end].token != second) continue;
    cells_[end].token = kNone;
    end += bytes_[second];
    cells_[begin].token = cells_[end - 1].token = product;
  }
}

void PairQueue::replace_listed(PairTable::Entry occurrences, TokenPair pair, uint32_t product) {
  const uint32_t first = pair.first, second = pair.second;
  const uint32_t first_bytes = bytes_[first], bytes = first_bytes + bytes_[second];
  const uint32_t* const positions = &positions_[occurrences.first];
  for (uint32_t i = 0; i < occurrences.size; ++i) {
    if (i + kPrefetch < occurrences.size) __builtin_prefetch(&cells_[positions[i + kPrefetch]], 1);
    const uint32_t position = positions[i];
    Cell* const cell = &cells_[position];
    // One of the two may have become part of another token; in aaa, merging the first pair removes the second.
    if (cell[0].token != first || cell[first_bytes].token != second) continue;
    cell[first_bytes].token = kNone;
    cell[0].token = cell[bytes - 1].token = product;
    const auto count = static_cast<int64_t>(count_of(cell->count));
    const uint32_t before = cell[-1].token;
    left_.note(before, position - (before == kNone ? 0 : bytes_[before]), count);
    right_.note(cell[bytes].token, position, count);
  }
}

// Indexes the pairs of the product with its neighbours, except the rare ones. False if there is no room for them.
template <typename Key>
bool PairQueue::index_products(Side& side, Key key_with_product) {
  const auto is_rare = [&](uint32_t token) {
    return !is_frequent({side.neighbours[token].count, key_with_product(token)});
  };
  size_t pairs = 0, positions = 0;
  for (const uint32_t token : side.seen) {
    if (is_rare(token)) continue;
    ++pairs;
    positions += side.neighbours[token].occurrences;
  }
  const bool fits = pairs_.size() + pairs <= most_pairs() && listed_ + positions <= most_positions();
  if (fits && pairs > 0) {
    for (const uint32_t token : side.seen) {
      if (is_rare(token)) continue;
      Neighbour& neighbour = side.neighbours[token];
      PairTable::Entry& entry = pairs_.find_or_insert(key_with_product(token));
      entry.count = neighbour.count;
      entry.first = neighbour.next = static_cast<uint32_t>(listed_);
      entry.size = neighbour.occurrences;
      listed_ += neighbour.occurrences;
    }
    for (const auto& [token, position] : side.places) {
      uint32_t& next = side.neighbours[token].next;
      if (next != PairTable::Entry::kUnlisted) positions_[next++] = position;
    }
  }
  side.places.clear();
  return fits;
}

// The pairs of the neighbours with the parts of the product occur less often now. Where the parts follow each other twice,
// as in xyxy, a neighbour is itself the product, and one of those pairs is that of the product with the next part.
void PairQueue::lower_counts(TokenPair pair) {
  for (const uint32_t left : left_.seen) {
    if (PairTable::Entry* entry = pairs_.find(key_of(left, pair.first))) entry->count -= left_.neighbours[left].count;
  }
  for (const uint32_t right : right_.seen) {
    if (PairTable::Entry* entry = pairs_.find(key_of(pair.second, right)))
      entry->count -= right_.neighbours[right].count;
  }
}

template <typename Key>
void PairQueue::enqueue_products(Side& side, Key key_with_product) {
  for (const uint32_t token : side.seen) {
    if (side.neighbours[token].next != PairTable::Entry::kUnlisted) {
      const uint64_t key = key_with_product(token);
      const int64_t count = pairs_.find(key)->count;
      if (is_frequent({count, key})) heap_.push({count, key});
    }
    side.neighbours[token] = {};
  }
  side.seen.clear();
}

}  // namespace gpt::tokenizer
