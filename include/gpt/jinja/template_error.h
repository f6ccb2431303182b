// What is wrong with a template, or with what it is given.
#pragma once

#include <string>

#include "gpt/core/error.h"

namespace gpt::jinja {

// One line that begins with the place, "line 3: ..."; the exit code is that of data.
class TemplateError : public Error {
 public:
  explicit TemplateError(const std::string& message) : Error(ExitCode::data, message) {}
};

// What the template refuses by itself, with raise_exception(): the message is the template's.
class Refusal : public TemplateError {
 public:
  using TemplateError::TemplateError;
};

}  // namespace gpt::jinja
