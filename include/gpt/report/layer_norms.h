// 2-norms of an update, layer by layer: of its gradients before clipping, of the weights after it, and of what it changed in them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gpt::report {

// Norms of what is trained: the embeddings, the blocks, and what follows them, the final normalization and a head of its own.
struct LayerNorms {
  std::vector<double> gradient, weight, update;

  int64_t layers() const { return static_cast<int64_t>(gradient.size()); }
  std::string name_of(int64_t layer) const;  // "embeddings", "h.0", ..., "final"
};

// The three, under the names that metrics.jsonl has for them.
inline constexpr std::array<std::pair<const char*, std::vector<double> LayerNorms::*>, 3> kLayerNormFields{
    {{"gradient", &LayerNorms::gradient}, {"weight", &LayerNorms::weight}, {"update", &LayerNorms::update}}};

}  // namespace gpt::report
