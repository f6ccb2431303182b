#include "gpt/report/layer_norms.h"

#include <fmt/format.h>

namespace gpt::report {

std::string LayerNorms::name_of(int64_t layer) const {
  return layer == 0 ? "embeddings" : layer == layers() - 1 ? "final" : fmt::format("h.{}", layer - 1);
}

}  // namespace gpt::report
