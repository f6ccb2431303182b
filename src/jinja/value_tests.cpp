// Jinja's tests: value is name(arguments).
#include <algorithm>
#include <iterator>

#include "filters.h"
#include "operators.h"
#include "python_text.h"

namespace gpt::jinja {
namespace {

struct NamedTest {
  std::string_view name;
  Filter test;
};

// +[] makes a plain function of each.
template <bool (*holds)(const Value&)>
Value tested(const Value& value, Parameters&, Runtime&) {
  return holds(value);
}

template <bool (*holds)(int order)>
Value ordered(const Value& value, Parameters& parameters, Runtime& runtime) {
  return holds(compare(value, parameters.take("other"), runtime));
}

template <bool wanted>
Value equals(const Value& value, Parameters& parameters, Runtime& runtime) {
  const Value other = parameters.take("other");
  runtime.charge(std::min(value.weight(), other.weight()));
  return equal(value, other) == wanted;
}

Value is_within(const Value& value, Parameters& parameters, Runtime& runtime) {
  return contains(parameters.take("seq"), value, runtime);
}

Value is_same_thing(const Value& value, Parameters& parameters, Runtime&) {
  const Value other = parameters.take("other");
  const bool same_kind = value.boolean() ? other.boolean() != nullptr : value.is_none() ? other.is_none() : false;
  if (!same_kind) {
    if (other.boolean() || other.is_none()) return false;
    throw Failure{"'sameas' compares with true, false and none only: use =="};
  }
  return equal(value, other);
}

Value is_divisible(const Value& value, Parameters& parameters, Runtime& runtime) {
  return equal(compute("%", value, parameters.take("num"), runtime), int64_t{0});
}

template <int64_t rest>
Value has_rest(const Value& value, Parameters&, Runtime& runtime) {
  return equal(compute("%", value, int64_t{2}, runtime), rest);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined_value(const Value& v) { return v.is_undefined(); }
bool is_none_value(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.boolean(); }
bool is_true_itself(const Value& v) { return v.boolean() && *v.boolean(); }
bool is_false_itself(const Value& v) { return v.boolean() && !*v.boolean(); }
bool is_integer(const Value& v) { return v.integer(); }
bool is_float(const Value& v) { return v.real(); }
bool is_number(const Value& v) { return as_number(v).has_value(); }
bool is_string(const Value& v) { return v.text(); }
bool is_mapping(const Value& v) { return v.mapping(); }
bool is_sequence(const Value& v) { return v.text() || v.list() || v.mapping(); }
bool is_iterable(const Value& v) { return is_sequence(v) || v.is_undefined(); }
bool is_callable(const Value& v) { return v.function(); }
bool is_upper(const Value& v) { return v.text() && upper(*v.text()) == *v.text() && lower(*v.text()) != *v.text(); }
bool is_lower(const Value& v) { return v.text() && lower(*v.text()) == *v.text() && upper(*v.text()) != *v.text(); }
bool is_above(int order) { return order > 0; }
bool is_not_below(int order) { return order >= 0; }
bool is_below(int order) { return order < 0; }
bool is_not_above(int order) { return order <= 0; }

constexpr NamedTest kTests[] = {
    {"!=", equals<false>},
    {"<", ordered<is_below>},
    {"<=", ordered<is_not_above>},
    {"==", equals<true>},
    {">", ordered<is_above>},
    {">=", ordered<is_not_below>},
    {"boolean", tested<is_boolean>},
    {"callable", tested<is_callable>},
    {"defined", tested<is_defined>},
    {"divisibleby", is_divisible},
    {"eq", equals<true>},
    {"equalto", equals<true>},
    {"even", has_rest<0>},
    {"false", tested<is_false_itself>},
    {"float", tested<is_float>},
    {"ge", ordered<is_not_below>},
    {"greaterthan", ordered<is_above>},
    {"gt", ordered<is_above>},
    {"in", is_within},
    {"integer", tested<is_integer>},
    {"iterable", tested<is_iterable>},
    {"le", ordered<is_not_above>},
    {"lessthan", ordered<is_below>},
    {"lower", tested<is_lower>},
    {"lt", ordered<is_below>},
    {"mapping", tested<is_mapping>},
    {"ne", equals<false>},
    {"none", tested<is_none_value>},
    {"number", tested<is_number>},
    {"odd", has_rest<1>},
    {"sameas", is_same_thing},
    {"sequence", tested<is_sequence>},
    {"string", tested<is_string>},
    {"true", tested<is_true_itself>},
    {"undefined", tested<is_undefined_value>},
    {"upper", tested<is_upper>},
};

}  // namespace

Filter find_test(std::string_view name) {
  const auto is_it = [name](const NamedTest& test) { return test.name == name; };
  const auto found = std::find_if(std::begin(kTests), std::end(kTests), is_it);
  return found == std::end(kTests) ? nullptr : found->test;
}

}  // namespace gpt::jinja
