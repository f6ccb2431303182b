// What expressions are worth.
#include <fmt/format.h>

#include <algorithm>

#include "access.h"
#include "error_at.h"
#include "operators.h"
#include "syntax.h"

namespace gpt::jinja {
namespace {

constexpr size_t kStep = 16;  // what one costs, beside bytes

Value value_or_none(const ExpressionPtr& expression, const Scope& scope, Runtime& runtime) {
  return expression ? expression->value(scope, runtime) : Value(None{});
}

bool holds(std::string_view sign, const Value& a, const Value& b, Runtime& runtime) {
  if (sign == "==" || sign == "!=") {
    runtime.charge(std::min(a.weight(), b.weight()));
    return equal(a, b) == (sign == "==");
  }
  if (sign == "in" || sign == "not in") return contains(b, a, runtime) == (sign == "in");
  const int order = compare(a, b, runtime);
  return sign == "<" ? order < 0 : sign == "<=" ? order <= 0 : sign == ">" ? order > 0 : order >= 0;
}

}  // namespace

Value Expression::value(const Scope& scope, Runtime& runtime) const {
  try {
    const Runtime::Depth depth(runtime);
    runtime.charge(kStep);
    return compute_value(scope, runtime);
  } catch (const Failure& failure) { fail_at(line, failure.why); }
}

Arguments CallArguments::values(const Scope& scope, Runtime& runtime) const {
  Arguments values;
  for (const ExpressionPtr& argument : positional) values.positional.push_back(argument->value(scope, runtime));
  for (const auto& [name, argument] : named) values.named.emplace_back(name, argument->value(scope, runtime));
  return values;
}

Value Name::compute_value(const Scope& scope, Runtime&) const {
  const Value* const found = scope.find(name);
  return found ? *found : Value(Undefined{fmt::format("'{}' is undefined", name)});
}

Value ListOf::compute_value(const Scope& scope, Runtime& runtime) const {
  std::vector<Value> values;
  for (const ExpressionPtr& one : items) values.push_back(one->value(scope, runtime));
  return Value::list(std::move(values), is_tuple);
}

Value MappingOf::compute_value(const Scope& scope, Runtime& runtime) const {
  std::vector<std::pair<Value, Value>> values;
  for (const auto& [key, entry] : entries) {
    Value name = key->value(scope, runtime);
    runtime.charge(values.size());
    const auto is_it = [&](const auto& other) { return equal(other.first, name); };
    const auto there = std::find_if(values.begin(), values.end(), is_it);
    Value value = entry->value(scope, runtime);
    there != values.end() ? (void)(there->second = std::move(value))
                          : (void)values.emplace_back(std::move(name), std::move(value));
  }
  return Value::mapping(std::move(values));
}

Value Attribute::compute_value(const Scope& scope, Runtime& runtime) const {
  return attribute(of->value(scope, runtime), name, runtime);
}

Value Item::compute_value(const Scope& scope, Runtime& runtime) const {
  const Value whole = of->value(scope, runtime);
  return item(whole, key->value(scope, runtime), runtime);
}

Value Slice::compute_value(const Scope& scope, Runtime& runtime) const {
  const Value whole = of->value(scope, runtime);
  return slice(whole, value_or_none(start, scope, runtime), value_or_none(stop, scope, runtime),
               value_or_none(step, scope, runtime), runtime);
}

Value Call::compute_value(const Scope& scope, Runtime& runtime) const {
  const Value called = function->value(scope, runtime);
  if (!defined(called).function()) throw Failure{fmt::format("a {} cannot be called", called.type_name())};
  return called.function()->call(runtime, arguments.values(scope, runtime));
}

Value Filtered::apply(const Value& value, const Scope& scope, Runtime& runtime) const {
  Parameters parameters(name, arguments.values(scope, runtime));
  Value result = filter(value, parameters, runtime);
  parameters.end();
  return result;
}

Value Filtered::compute_value(const Scope& scope, Runtime& runtime) const {
  return apply(of->value(scope, runtime), scope, runtime);
}

Value Negative::compute_value(const Scope& scope, Runtime& runtime) const {
  const Value value = of->value(scope, runtime);
  if (is_not) return !is_true(value);
  return is_plus ? compute("+", int64_t{0}, value, runtime) : negative(defined(value));
}

Value Calculation::compute_value(const Scope& scope, Runtime& runtime) const {
  const Value a = left->value(scope, runtime);
  return compute(sign, a, right->value(scope, runtime), runtime);
}

Value Concatenation::compute_value(const Scope& scope, Runtime& runtime) const {
  std::string text;
  for (const ExpressionPtr& part : parts) text += text_of(part->value(scope, runtime), runtime);
  runtime.charge(text.size());
  return text;
}

Value Comparison::compute_value(const Scope& scope, Runtime& runtime) const {
  Value left = first->value(scope, runtime);
  for (const auto& [sign, other] : others) {
    Value right = other->value(scope, runtime);
    if (!holds(sign, left, right, runtime)) return false;
    left = std::move(right);
  }
  return true;
}

Value Junction::compute_value(const Scope& scope, Runtime& runtime) const {
  Value value = left->value(scope, runtime);
  return is_true(value) == is_and ? right->value(scope, runtime) : value;
}

Value Conditional::compute_value(const Scope& scope, Runtime& runtime) const {
  if (is_true(condition->value(scope, runtime))) return then->value(scope, runtime);
  if (otherwise) return otherwise->value(scope, runtime);
  return Undefined{"an inline if has no else, and its condition is false"};
}

}  // namespace gpt::jinja
