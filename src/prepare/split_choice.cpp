#include "split_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gpt/core/hash.h"

namespace gpt::prepare {

// With an expected ten documents on the smaller side it is never empty by chance (1 in 20,000) nor far from its share.
int64_t documents_to_split(double validation_fraction) {
  constexpr double kExpected = 10;
  const double smaller = std::min(validation_fraction, 1 - validation_fraction);
  return smaller > 0 ? static_cast<int64_t>(std::ceil(kExpected / smaller)) : std::numeric_limits<int64_t>::max();
}

bool is_for_validation(uint64_t key, const PrepareOptions& options) {
  const uint64_t drawn = mix64(key ^ mix64(options.seed + 1));
  return static_cast<double>(drawn >> 11) * 0x1p-53 < options.validation_fraction;
}

void TrainingSide::count(const Chunk& chunk) {
  bytes_ += static_cast<int64_t>(chunk.text.size());
  documents_ +=
      std::count_if(chunk.parts.begin(), chunk.parts.end(), [](const DocumentPart& part) { return part.last; });
}

bool TrainingSide::is_split_by_documents() const {
  return documents_ >= documents_to_split(options_.validation_fraction);
}

std::string_view TrainingSide::of(const DocumentPart& part, std::string_view text) {
  if (options_.validation_fraction == 0) return text;
  if (is_split_by_documents()) return is_for_validation(part.key, options_) ? std::string_view() : text;
  const auto all = static_cast<int64_t>(static_cast<double>(bytes_) * (1 - options_.validation_fraction));
  const int64_t left = std::max<int64_t>(0, all - passed_);
  passed_ += static_cast<int64_t>(text.size());
  return text.substr(0, static_cast<size_t>(left));
}

}  // namespace gpt::prepare
