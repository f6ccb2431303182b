#pragma once

#include <cstdint>
#include <vector>

#include "gpt/data/token_file.h"

namespace gpt::data {

inline std::vector<int32_t> ids_of(const Tokens& tokens) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens.size(); ++i) ids.push_back(tokens[i]);
  return ids;
}

}  // namespace gpt::data
