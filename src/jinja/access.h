// Parts of values.
#pragma once

#include <string_view>

#include "gpt/jinja/value.h"
#include "runtime.h"

namespace gpt::jinja {

// value.name, value[key] and value[start:stop:step]; undefined where there is none.
Value attribute(const Value& value, std::string_view name, Runtime& runtime);
Value item(const Value& value, const Value& key, Runtime& runtime);
Value slice(const Value& value, const Value& start, const Value& stop, const Value& step, Runtime& runtime);

}  // namespace gpt::jinja
