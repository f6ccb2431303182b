#include "piece_counter.h"

#include <algorithm>
#include <atomic>
#include <future>

namespace gpt {
namespace {

constexpr size_t kChunkBytes = 1 << 20;     // what a thread takes at a time
constexpr size_t kPendingBytes = 4 << 20;   // for each thread, worth starting the threads for
constexpr size_t kLocalPieces = 1 << 15;
constexpr int kShardBits = 8;
constexpr size_t kSmallestTable = 1 << 10;

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

void PieceTable::add(std::string_view piece, size_t hash, uint64_t count) {
  if (size_ * 2 >= slots_.size()) grow();
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    Slot& slot = slots_[i];
    if (slot.count == 0) {
      slot = {hash, count, bytes_.size(), piece.size()};
      bytes_.append(piece);
      ++size_;
      return;
    }
    if (slot.hash == hash && std::string_view(bytes_).substr(slot.offset, slot.length) == piece) {
      slot.count += count;
      return;
    }
  }
}

void PieceTable::grow() {
  std::vector<Slot> old(std::max(kSmallestTable, slots_.size() * 2));
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.count == 0) continue;
    size_t i = slot.hash & mask;
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
  for (size_t begin = 0; begin < chunk.size();) {
    const size_t end = piece_end(split_, chunk, begin);
    const std::string_view piece = chunk.substr(begin, end - begin);
    local.add(piece, std::hash<std::string_view>{}(piece), 1);
    if (local.size() == kLocalPieces) empty_into_shards(local);
    begin = end;
  }
}

void PieceCounter::empty_into_shards(PieceTable& local) {
  local.for_each([this](std::string_view piece, size_t hash, uint64_t count) {
    Shard& shard = shards_[hash >> (8 * sizeof(hash) - kShardBits)];  // the tables themselves go by the low bits
    const std::lock_guard lock(shard.mutex);
    shard.table.add(piece, hash, count);
  });
  local.clear();
}

void PieceCounter::take(const std::function<void(std::string_view, uint64_t)>& visit) {
  count_pending();
  for (PieceTable& local : locals_) {
    empty_into_shards(local);
    local = {};
  }
  for (Shard& shard : shards_) {
    shard.table.for_each([&](std::string_view piece, size_t, uint64_t count) { visit(piece, count); });
    shard.table = {};  // its memory is wanted for what `visit` builds
  }
}

}  // namespace gpt
