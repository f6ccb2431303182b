// A table's rows as tests look for them, however wide its columns are.
#pragma once

#include <regex>
#include <string>

#include "gpt/bench/document.h"

namespace gpt::bench {

// As Markdown, with one space where there are several.
inline std::string unpadded(const Document& text) {
  return std::regex_replace(to_markdown(text), std::regex(" +"), " ");
}

}  // namespace gpt::bench
