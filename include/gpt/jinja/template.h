// Templates in the part of Jinja 2 that templates of chats use, read and rendered as transformers does: the environment is its sandbox, in
// which values do not change, with trim_blocks, lstrip_blocks, break and continue, {% generation %}, raise_exception() and strftime_now().
// A template may come from anybody. It computes texts and nothing else, and what it may take is limited: steps, depth and sizes.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string_view>

#include "gpt/jinja/rendering.h"

namespace gpt::jinja {

class Statements;

// Immutable, and safe to use from several threads at once.
class Template {
 public:
  // Throws TemplateError for what is no template, and for what it uses of Jinja that is not there, by its name.
  explicit Template(std::string_view source);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // `now`: what strftime_now() tells, in local time. Throws TemplateError and Refusal.
  Rendered render(const Variables& variables, std::optional<std::time_t> now = {}, const Limits& limits = {}) const;

 private:
  std::unique_ptr<const Statements> statements_;
};

}  // namespace gpt::jinja
