#include "piece_memo.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace gpt::tokenizer {

PieceMemo& PieceMemo::of_this_thread(uint32_t owner) {
  static thread_local PieceMemo memo;
  if (memo.owner_ != owner) {
    memo.start_anew(kFewestLines);
    memo.owner_ = owner;
  }
  return memo;
}

PieceMemo::Key PieceMemo::long_key(std::string_view piece) {
  if (piece.size() > kMostBytes) return {0, kLong};  // of no piece that is remembered
  uint64_t hash = piece.size();
  const auto add = [&hash](const char* bytes) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  };
  for (size_t at = 0; at + sizeof hash < piece.size(); at += sizeof hash) add(piece.data() + at);
  add(piece.data() + piece.size() - sizeof hash);
  return {hash, kLong | piece.size()};
}

// perf: OPT-5. What the system gives is zero already, and large pages have to be asked for before the memory is touched. They
// begin at multiples of their size.
PieceMemo::Lines PieceMemo::new_lines(size_t count) {
  constexpr size_t kLargePage = size_t{1} << 21;
  const size_t bytes = count * sizeof(Line), mapped = bytes + kLargePage;
  void* const memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  void* start = memory;
  size_t room = mapped;
  std::align(kLargePage, bytes, start, room);
  madvise(start, bytes, MADV_HUGEPAGE);  // where that fails the pages are small
  return {static_cast<Line*>(start), Unmap{memory, mapped}};
}

void PieceMemo::Unmap::operator()(Line*) const { munmap(memory, bytes); }

void PieceMemo::start_anew(size_t lines) {
  ++moves_;
  lines_.reset();  // before there are new ones: both would be too much
  lines_ = new_lines(lines);
  shift_ = 64 - std::countr_zero(lines);
  used_ = 0;
  most_ = lines * std::tuple_size_v<decltype(Line::entries)> * 5 / 8;
  long_pieces_.clear();
  long_bytes_.clear();
  long_ids_.clear();
}

void PieceMemo::make_room() {
  const size_t count = line_count();
  if (count == kMostLines || long_bytes_.size() > kMostLongBytes) return start_anew(count);
  ++moves_;
  const Lines old = std::exchange(lines_, new_lines(2 * count));
  --shift_;
  most_ *= 2;
  for (const Line& line : std::span(old.get(), count)) {
    for (const Entry& entry : line.entries) {
      if (!entry.is_free()) entry_of(entry.key) = entry;
    }
  }
}

// The entry of the piece, or a free one.
PieceMemo::Entry& PieceMemo::entry_of(const Key& key) const {
  Line* const end = lines_.get() + line_count();
  for (Line* there = lines_.get() + (&line_of(key) - lines_.get());;
       there = there + 1 == end ? lines_.get() : there + 1) {
    for (Entry& entry : there->entries) {
      if (entry.key == key || entry.is_free()) return entry;
    }
  }
}

// False where the entry is free, or of another piece of the same length and hash.
bool PieceMemo::append_known(const Entry& entry, std::string_view piece, std::vector<int32_t>& ids) const {
  if (entry.is_free()) return false;
  std::array<int32_t, kFewIds> few;
  if (const size_t count = entry.copy_ids(few.data())) {
    ids.insert(ids.end(), few.begin(), few.begin() + count);
    return true;
  }
  const LongPiece& known = long_pieces_[entry.ids[1]];
  if (std::string_view(long_bytes_).substr(known.bytes, piece.size()) != piece) return false;
  ids.insert(ids.end(), long_ids_.begin() + known.ids, long_ids_.begin() + known.ids + known.count);
  return true;
}

void PieceMemo::remember(Entry& entry, const Key& key, std::string_view piece, std::span<const int32_t> ids) {
  if (piece.size() > kMostBytes) return;
  entry.key = key;
  ++used_;
  if (piece.size() <= kShort && !ids.empty() && ids.size() <= kFewIds) {
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
    entry.ids[0] |= static_cast<uint32_t>(ids.size()) << kCountShift;
    return;
  }
  entry.ids = {0, static_cast<uint32_t>(long_pieces_.size())};
  long_pieces_.push_back({static_cast<uint32_t>(long_bytes_.size()), static_cast<uint32_t>(long_ids_.size()),
                          static_cast<uint32_t>(ids.size())});
  long_bytes_.append(piece);
  long_ids_.insert(long_ids_.end(), ids.begin(), ids.end());
}

}  // namespace gpt::tokenizer
