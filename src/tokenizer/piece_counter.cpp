#include "piece_counter.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <future>
#include <utility>

#include "gpt/tokenizer/bpe.h"

namespace gpt::tokenizer {
namespace {

constexpr size_t kChunkBytes = 1 << 20;    // what a thread takes at a time
constexpr size_t kPendingBytes = 4 << 20;  // for each thread: enough to be worth starting the threads
constexpr size_t kLocalPieces = 1 << 15;
constexpr size_t kLocalBytes = 1 << 21;
constexpr size_t kTogether = 64;     // pieces added at once, so that their slots are fetched in parallel
constexpr size_t kPiecesAhead = 12;  // how far ahead memory is prefetched
constexpr int kShardBits = 6;
constexpr size_t kSmallestTable = 1 << 8;

// Appends `text` in parts of about kChunkBytes that begin and end where pieces do.
void cut(SplitPattern split, std::string_view text, std::vector<std::string_view>& chunks) {
  for (size_t window = kChunkBytes; text.size() > window;) {
    const size_t end = last_piece_boundary(split, text.substr(0, window));
    if (end == 0) {
      window *= 2;
      continue;
    }
    chunks.push_back(text.substr(0, end));
    text.remove_prefix(end);
    window = kChunkBytes;
  }
  if (!text.empty()) chunks.push_back(text);
}

}  // namespace

std::string_view PieceTable::text_of(const Slot& slot) const {
  if (slot.key.high & Key::kLong) return std::string_view(bytes_).substr(slot.key.low, slot.key.high ^ Key::kLong);
  return {reinterpret_cast<const char*>(&slot.key), slot.key.high >> 56};
}

bool PieceTable::holds(const Slot& slot, const Piece& piece, const Key& short_key) const {
  if (piece.text.size() <= Key::kInSlot) return slot.key == short_key;
  return slot.key.high & Key::kLong && text_of(slot) == piece.text;
}

void PieceTable::add(std::span<const Piece> pieces) {
  while ((size_ + pieces.size()) * 3 > slots_.size() * 2) grow();
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i + kPiecesAhead < pieces.size())
      __builtin_prefetch(&slots_[pieces[i + kPiecesAhead].hash & (slots_.size() - 1)], 1);
    add(pieces[i]);
  }
}

void PieceTable::add(const Piece& piece) {
  static_assert(std::endian::native == std::endian::little && sizeof(Key) == Key::kInSlot + 1);
  Key key;
  const bool is_short = piece.text.size() <= Key::kInSlot;
  if (is_short) {
    std::memcpy(&key, piece.text.data(), piece.text.size());
    key.high |= uint64_t{piece.text.size()} << 56;
  }
  size_t i = piece.hash & (slots_.size() - 1);
  while (slots_[i].count > 0 && !holds(slots_[i], piece, key)) i = (i + 1) & (slots_.size() - 1);
  Slot& slot = slots_[i];
  if (slot.count == 0) {
    if (!is_short) {
      key = {bytes_.size(), Key::kLong | piece.text.size()};
      bytes_.append(piece.text);
    }
    slot.key = key;
    ++size_;
  }
  slot.count += piece.count;
}

void PieceTable::grow() {
  std::vector<Slot> old(std::max(kSmallestTable, slots_.size() * 2));
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.count == 0) continue;
    size_t i = hash_of(text_of(slot)) & mask;
    while (slots_[i].count > 0) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

void PieceTable::clear() {
  std::fill(slots_.begin(), slots_.end(), Slot{});
  bytes_.clear();
  size_ = 0;
}

PieceCounter::PieceCounter(SplitPattern split, int threads)
    : split_(split), locals_(static_cast<size_t>(std::max(1, threads))), shards_(size_t{1} << kShardBits) {}

void PieceCounter::add(std::string_view text) {
  const size_t enough = kPendingBytes * locals_.size();
  if (text.size() >= enough) {
    std::vector<std::string_view> chunks;
    cut(split_, text, chunks);
    return count(chunks);
  }
  pending_.append(text);
  ends_.push_back(pending_.size());
  if (pending_.size() >= enough) count_pending();
}

void PieceCounter::count_pending() {
  std::vector<std::string_view> chunks;
  size_t begin = 0;
  for (const size_t end : ends_) {
    cut(split_, std::string_view(pending_).substr(begin, end - begin), chunks);
    begin = end;
  }
  count(chunks);
  pending_.clear();
  ends_.clear();
}

void PieceCounter::count(const std::vector<std::string_view>& chunks) {
  std::atomic<size_t> next{0};
  const auto work = [&](PieceTable& local) {
    for (size_t i; (i = next++) < chunks.size();) count(chunks[i], local);
  };
  std::vector<std::future<void>> others;
  for (size_t i = 1; i < std::min(locals_.size(), chunks.size()); ++i) {
    others.push_back(std::async(std::launch::async, work, std::ref(locals_[i])));
  }
  work(locals_[0]);
  for (std::future<void>& other : others) other.get();
}

void PieceCounter::count(std::string_view chunk, PieceTable& local) {
  std::array<PieceTable::Piece, kTogether> pieces;
  for (size_t begin = 0, end = 0; begin < chunk.size();) {  // `end`: of a piece, which is cut where it is too long
    size_t size = 0;
    for (const size_t stop = std::min(chunk.size(), begin + kLocalBytes); size < kTogether && begin < stop; ++size) {
      if (begin == end) end = piece_end(split_, chunk, begin);
      const std::string_view text = chunk.substr(begin, std::min(end - begin, BpeTokenizer::kLongestPiece));
      pieces[size] = {text, PieceTable::hash_of(text), 1};
      begin += text.size();
    }
    local.add({pieces.data(), size});
    if (local.size() + kTogether > kLocalPieces || local.long_bytes() > kLocalBytes) empty_into_shards(local);
  }
}

void PieceCounter::empty_into_shards(PieceTable& local) {
  std::vector<std::vector<PieceTable::Piece>> parts(shards_.size());
  constexpr int kShift = 8 * sizeof(size_t) - kShardBits;  // the tables themselves use the low bits of the hash
  local.for_each([&parts](const PieceTable::Piece& piece) { parts[piece.hash >> kShift].push_back(piece); });
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::lock_guard lock(shards_[i].mutex);
    shards_[i].table.add(parts[i]);
  }
  local.clear();
}

void PieceCounter::finish() {
  count_pending();
  pending_.shrink_to_fit();
  for (PieceTable& local : locals_) {
    PieceTable last = std::exchange(local, {});
    empty_into_shards(last);
  }
}

PieceCounter::Total PieceCounter::distinct() {
  finish();
  Total total;
  for (const Shard& shard : shards_) {
    total.pieces += shard.table.size();
    shard.table.for_each([&total](const PieceTable::Piece& piece) { total.bytes += piece.text.size(); });
  }
  return total;
}

void PieceCounter::take(const std::function<void(std::string_view, uint64_t)>& visit) {
  finish();
  for (Shard& shard : shards_) {
    const PieceTable table = std::exchange(shard.table, {});  // its memory is needed for what `visit` builds
    table.for_each([&visit](const PieceTable::Piece& piece) { visit(piece.text, piece.count); });
  }
}

}  // namespace gpt::tokenizer
