// What every template can call, and namespaces.
#pragma once

#include <string>
#include <string_view>

#include "gpt/jinja/value.h"
#include "runtime.h"

namespace gpt::jinja {

// range, namespace, dict, raise_exception and strftime_now.
const Variables& global_functions();

// loop.cycle() in the round `at`.
Value cycle(int64_t at);

// Throws Failure where `object`, which the variable of that name holds, is no namespace, or the value may not lie in one.
void set_attribute(const Value* object, const std::string& variable, const std::string& name, const Value& value);

}  // namespace gpt::jinja
