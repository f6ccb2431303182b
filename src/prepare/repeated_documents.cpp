#include "repeated_documents.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace gpt::prepare {
namespace {

// Documents are compared where eight numbers in a row agree: of those with a similarity of 0.8 (0.9) it finds 95 % (99.99 %).
constexpr int kBands = 16, kBandSize = kMinHashes / kBands;

}  // namespace

ComparedChunk compared(Chunk chunk, Deduplicate how) {
  ComparedChunk result;
  size_t begin = 0;
  for (const DocumentPart& part : chunk.parts) {
    if (how == Deduplicate::near)
      result.hashes.push_back(min_hash(std::string_view(chunk.text).substr(begin, part.end - begin)));
    begin = part.end;
  }
  result.chunk = std::move(chunk);
  return result;
}

void RepetitionFinder::add(const ComparedChunk& compared, const std::vector<uint32_t>& numbers) {
  size_t begin = 0;
  for (size_t i = 0; i < compared.chunk.parts.size(); ++i) {
    const DocumentPart& part = compared.chunk.parts[i];
    if (part.first) text_ = Hash128(), words_ = no_words();
    text_.update(std::string_view(compared.chunk.text).substr(begin, part.end - begin));
    for (int k = 0; !compared.hashes.empty() && k < kMinHashes; ++k)
      words_[k] = std::min(words_[k], compared.hashes[i][k]);
    if (part.last && repeats_an_earlier_one()) repeated_.add(numbers[part.source], part.document);
    begin = part.end;
  }
}

bool RepetitionFinder::repeats_an_earlier_one() {
  if (!texts_.insert(text_.digest()).second) return true;
  return how_ == Deduplicate::near && words_ != no_words() && is_near_an_earlier_one();
}

bool RepetitionFinder::is_near_an_earlier_one() {
  Sketch sketch;
  for (int k = 0; k < kMinHashes; ++k) sketch[k] = static_cast<uint8_t>(words_[k]);
  const auto similarity = [&](const Sketch& other) {
    int equal = 0;
    for (int k = 0; k < kMinHashes; ++k) equal += sketch[k] == other[k];
    constexpr double kByChance = 1.0 / 256;
    return (static_cast<double>(equal) / kMinHashes - kByChance) / (1 - kByChance);
  };
  std::array<uint64_t, kBands> bands;
  for (int band = 0; band < kBands; ++band) {
    const char* const numbers = reinterpret_cast<const char*>(words_.data() + band * kBandSize);
    bands[band] = hash64({numbers, kBandSize * sizeof(uint32_t)}) + static_cast<uint64_t>(band);
    const auto owner = first_owner_.find(bands[band]);
    if (owner != first_owner_.end() && similarity(sketches_[owner->second]) >= kNearThreshold) return true;
  }
  for (const uint64_t band : bands) first_owner_.try_emplace(band, static_cast<uint32_t>(sketches_.size()));
  sketches_.push_back(sketch);
  return false;
}

}  // namespace gpt::prepare
