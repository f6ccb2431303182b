#pragma once

#include <cstddef>

namespace gpt::config {

constexpr size_t kMostBytes = 1 << 20;  // the largest configuration, as YAML: more is neither read nor accepted

}  // namespace gpt::config
