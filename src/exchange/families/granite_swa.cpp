#include "exchange/families/granite_swa.h"

#include <fmt/format.h>

#include "exchange/families/llama.h"

namespace gpt::exchange {
namespace {

std::vector<ArchitectureKey> granite_keys(const ModelConfig& m) {
  std::vector<int32_t> rotates;
  for (int64_t layer = 0; layer < m.n_layer; ++layer) rotates.push_back(m.rotates(layer) ? 1 : 0);
  std::vector<ArchitectureKey> keys = llama_keys(m);
  keys.push_back({"logit_scale", 1.0f});
  keys.push_back(window_key(m));
  keys.push_back(window_pattern_key(m));
  keys.push_back({"attention.rope_pattern", std::move(rotates)});
  return keys;
}

std::vector<GgufConstant> no_sinks(const ModelConfig& m) {
  constexpr float kNone = -1e30f;
  std::vector<GgufConstant> sinks;
  for (int64_t layer = 0; layer < m.n_layer; ++layer)
    sinks.push_back({fmt::format("blk.{}.attn_sinks.weight", layer), m.heads(), kNone});
  return sinks;
}

}  // namespace

const Architecture kGraniteSwa = {.name = "granite_swa", .keys = granite_keys, .constants = no_sinks};

}  // namespace gpt::exchange
