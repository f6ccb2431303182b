// What goes into the rendering of a template, and what comes out of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpt/jinja/template_error.h"
#include "gpt/jinja/value.h"

namespace gpt::jinja {

struct Limits {
  int64_t work = int64_t{1} << 27;   // bytes, and 16 for each step: a second or so
  size_t output = size_t{16} << 20;  // bytes of a text
};

struct Span {
  size_t begin, end;  // bytes of a text
  bool operator==(const Span&) const = default;
};

struct Rendered {
  std::string text;
  std::vector<Span> generated = {};  // what stands between {% generation %} and {% endgeneration %}
};

using Variables = std::vector<std::pair<std::string, Value>>;

}  // namespace gpt::jinja
