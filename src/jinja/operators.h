// What Python makes of values: whether they count as true, how they compare and add up, what they read like.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/jinja/value.h"
#include "runtime.h"

namespace gpt::jinja {

bool is_true(const Value& value);
// Below 0, 0 or above. Throws Failure where they have no order.
int compare(const Value& a, const Value& b, Runtime& runtime);
bool contains(const Value& whole, const Value& part, Runtime& runtime);

// `sign`: + - * / // % **
Value compute(std::string_view sign, const Value& a, const Value& b, Runtime& runtime);
Value negative(const Value& value);

// str(value); a part of another value reads as repr(value) has it.
std::string text_of(const Value& value, Runtime& runtime);
std::string quoted_text_of(const Value& value, Runtime& runtime);
// json.dumps(value).
struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent = {};  // of a level
  std::string between_items = ", ", after_key = ": ";
};
std::string json_of(const Value& value, const JsonStyle& style, Runtime& runtime);

// What a loop goes through. Throws Failure where it cannot.
std::vector<Value> items_of(const Value& value, Runtime& runtime);
int64_t length_of(const Value& value);

// Throws Failure where the value is undefined.
const Value& defined(const Value& value);

}  // namespace gpt::jinja
