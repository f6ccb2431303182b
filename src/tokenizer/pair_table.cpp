#include "pair_table.h"

#include <algorithm>
#include <bit>

namespace gpt::tokenizer {

PairTable::PairTable(size_t expected)
    : slots_(std::bit_ceil(std::max<size_t>(expected * 2, 2))), shift_(64 - std::countr_zero(slots_.size())) {}

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

}  // namespace gpt::tokenizer
