// value | name(arguments), and value is name(arguments).
#pragma once

#include <string_view>

#include "gpt/jinja/value.h"
#include "parameters.h"
#include "runtime.h"

namespace gpt::jinja {

using Filter = Value (*)(const Value& value, Parameters& parameters, Runtime& runtime);

// nullptr where there is none of that name.
Filter find_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);  // those that lists are for, and find_filter() has too
Filter find_test(std::string_view name);             // of which the value is a bool

}  // namespace gpt::jinja
