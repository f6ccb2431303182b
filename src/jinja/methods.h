// What values can do: the methods of texts, lists and mappings that do not change them.
#pragma once

#include <optional>
#include <string_view>

#include "gpt/jinja/value.h"

namespace gpt::jinja {

// Bound to `value`; nothing where its type has no method of that name. One that would change the value, and one that is not there, throws
// Failure when it is called.
std::optional<Value> method(const Value& value, std::string_view name);

}  // namespace gpt::jinja
