// Arguments of a filter, a test, a method or a function, taken in the order of its parameters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gpt/jinja/value.h"

namespace gpt::jinja {

class Parameters {
 public:
  // `function`: what messages call it.
  Parameters(std::string_view function, Arguments arguments) : function_(function), arguments_(std::move(arguments)) {}

  // The next parameter. Both throw Failure: where nothing was given for it, and where its type is another one.
  Value take(std::string_view name);
  std::string text(std::string_view name);
  // With what it is where nothing was given.
  Value take(std::string_view name, Value otherwise);
  std::string text(std::string_view name, std::string_view otherwise);
  int64_t integer(std::string_view name, int64_t otherwise);
  bool truth(std::string_view name, bool otherwise);
  bool has_more() const { return next_ < arguments_.positional.size(); }
  Arguments rest();  // all that has not been taken

  // Throws Failure where more was given.
  void end() const;

 private:
  [[noreturn]] void refuse(std::string_view name, const char* wanted, const Value& value) const;

  const std::string function_;
  Arguments arguments_;
  size_t next_ = 0;
};

}  // namespace gpt::jinja
