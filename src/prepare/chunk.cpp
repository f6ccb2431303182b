#include "chunk.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace gpt {

uint64_t document_key(std::string_view text) {
  constexpr size_t kBeginning = 1 << 16;
  const std::string_view beginning = text.substr(0, kBeginning);
  return XXH3_64bits(beginning.data(), beginning.size());
}

}  // namespace gpt
