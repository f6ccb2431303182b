#pragma once

#include <string>
#include <string_view>

namespace gpt {

// `text` with `to` in place of each `from`, which must not be empty.
inline std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t begin = 0;;) {
    const size_t found = text.find(from, begin);
    result += text.substr(begin, found - begin);
    if (found == std::string_view::npos) return result;
    result += to;
    begin = found + from.size();
  }
}

}  // namespace gpt
