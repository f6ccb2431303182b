// Errors in a template, with their line.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "gpt/core/format.h"
#include "gpt/core/printable.h"
#include "gpt/jinja/template_error.h"

namespace gpt::jinja {

constexpr size_t kLongestMessage = 300;

[[noreturn]] inline void fail_at(int line, std::string_view why) {
  throw TemplateError(fmt::format("line {}: {}", line, shortened(printable_line(why), kLongestMessage)));
}

}  // namespace gpt::jinja
