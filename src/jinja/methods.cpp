#include "methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "gpt/core/utf8.h"
#include "operators.h"
#include "parameters.h"
#include "python_text.h"

namespace gpt::jinja {
namespace {

using MethodBody = Value (*)(const Value& self, Parameters& parameters, Runtime& runtime);

struct Method {
  std::string_view name;
  MethodBody body;  // nullptr: it is known, and refused
};

const std::string& self_text(const Value& self) { return *self.text(); }

Value texts(const std::vector<std::string_view>& parts, Runtime& runtime) {
  runtime.charge(64 * parts.size());
  return Value::list({parts.begin(), parts.end()});
}

template <Sides sides>
Value stripped(const Value& self, Parameters& parameters, Runtime&) {
  const Value chosen = parameters.take("chars", None{});
  if (!chosen.is_none() && !chosen.text()) throw Failure{"the characters to strip are a text"};
  return strip(self_text(self), chosen.text(), sides);
}

template <bool from_right>
Value split_up(const Value& self, Parameters& parameters, Runtime& runtime) {
  const Value separator = parameters.take("sep", None{});
  if (!separator.is_none() && (!separator.text() || separator.text()->empty()))
    throw Failure{"what separates parts is a text that is not empty"};
  return texts(split(self_text(self), separator.text(), parameters.integer("maxsplit", -1), from_right), runtime);
}

// Whether it begins or ends with the text, or with one of several.
template <bool at_end>
Value has_at_side(const Value& self, Parameters& parameters, Runtime& runtime) {
  const Value wanted = parameters.take("prefix");
  const std::vector<Value> all = wanted.text() ? std::vector{wanted} : items_of(defined(wanted), runtime);
  return std::any_of(all.begin(), all.end(), [&](const Value& one) {
    if (!one.text()) throw Failure{"startswith() and endswith() look for texts"};
    return at_end ? self_text(self).ends_with(*one.text()) : self_text(self).starts_with(*one.text());
  });
}

// The number of characters before it.
template <bool from_right, bool must_be_there>
Value place_of(const Value& self, Parameters& parameters, Runtime&) {
  const std::string &text = self_text(self), wanted = parameters.text("sub");
  const size_t at = from_right ? text.rfind(wanted) : text.find(wanted);
  if (at == std::string::npos && must_be_there) throw Failure{"the text is not found"};
  return at == std::string::npos ? int64_t{-1} : length(std::string_view(text).substr(0, at));
}

Value counted(const Value& self, Parameters& parameters, Runtime&) {
  const std::string wanted = parameters.text("sub");
  if (wanted.empty()) return length(self_text(self)) + 1;
  int64_t count = 0;
  for (size_t at = 0; (at = self_text(self).find(wanted, at)) != std::string::npos; at += wanted.size()) ++count;
  return count;
}

Value replaced(const Value& self, Parameters& parameters, Runtime& runtime) {
  const std::string old = parameters.text("old"), by = parameters.text("new");
  // As much as may be made.
  runtime.charge(self_text(self).size() + (self_text(self).size() / std::max<size_t>(old.size(), 1) + 1) * by.size());
  return replace(self_text(self), old, by, parameters.integer("count", -1));
}

Value joined_texts(const Value& self, Parameters& parameters, Runtime& runtime) {
  std::string text;
  bool is_first = true;
  for (const Value& part : items_of(parameters.take("iterable"), runtime)) {
    if (!part.text()) throw Failure{fmt::format("join() joins texts, not a {}", part.type_name())};
    if (!std::exchange(is_first, false)) text += self_text(self);
    runtime.charge(self_text(self).size() + part.text()->size());
    text += *part.text();
  }
  return text;
}

template <bool at_end>
Value without_side(const Value& self, Parameters& parameters, Runtime&) {
  const std::string side = parameters.text("prefix");
  const std::string_view text = self_text(self);
  if (at_end ? !text.ends_with(side) : !text.starts_with(side)) return text;
  return at_end ? text.substr(0, text.size() - side.size()) : text.substr(side.size());
}

template <bool (*belongs)(char32_t)>
Value consists_of(const Value& self, Parameters&, Runtime&) {
  const std::vector<std::string_view> all = characters(self_text(self));
  return !all.empty() &&
         std::all_of(all.begin(), all.end(), [](std::string_view c) { return belongs(utf8::scan(c, 0).value); });
}

bool is_ascii_digit(char32_t c) { return c >= '0' && c <= '9'; }

template <std::string (*change)(std::string_view)>
Value changed(const Value& self, Parameters&, Runtime&) {
  return change(self_text(self));
}

constexpr Method kTextMethods[] = {
    {"strip", stripped<Sides::both>},
    {"lstrip", stripped<Sides::left>},
    {"rstrip", stripped<Sides::right>},
    {"split", split_up<false>},
    {"rsplit", split_up<true>},
    {"splitlines",
     [](const Value& self, Parameters&, Runtime& runtime) { return texts(split_lines(self_text(self)), runtime); }},
    {"startswith", has_at_side<false>},
    {"endswith", has_at_side<true>},
    {"find", place_of<false, false>},
    {"rfind", place_of<true, false>},
    {"index", place_of<false, true>},
    {"rindex", place_of<true, true>},
    {"count", counted},
    {"replace", replaced},
    {"join", joined_texts},
    {"removeprefix", without_side<false>},
    {"removesuffix", without_side<true>},
    {"isspace", consists_of<is_white>},
    {"isalpha", consists_of<is_letter>},
    {"isdigit", consists_of<is_ascii_digit>},
    {"upper", changed<upper>},
    {"lower", changed<lower>},
    {"title", changed<title>},
    {"capitalize", changed<capitalize>},
    {"format", nullptr},
    {"format_map", nullptr},
    {"encode", nullptr},
    {"casefold", nullptr},
    {"center", nullptr},
    {"expandtabs", nullptr},
    {"isalnum", nullptr},
    {"isdecimal", nullptr},
    {"isidentifier", nullptr},
    {"islower", nullptr},
    {"isnumeric", nullptr},
    {"isprintable", nullptr},
    {"istitle", nullptr},
    {"isupper", nullptr},
    {"ljust", nullptr},
    {"partition", nullptr},
    {"rjust", nullptr},
    {"rpartition", nullptr},
    {"swapcase", nullptr},
    {"translate", nullptr},
    {"zfill", nullptr},
};

Value entries_of(const Value& self, Parameters&, Runtime& runtime) {
  std::vector<Value> pairs;
  runtime.charge(128 * self.mapping()->entries.size());
  for (const auto& [key, value] : self.mapping()->entries)
    pairs.push_back(Value::list({key, value}, /*is_tuple=*/true));
  return Value::list(std::move(pairs));
}

Value values_of(const Value& self, Parameters&, Runtime& runtime) {
  std::vector<Value> values;
  runtime.charge(32 * self.mapping()->entries.size());
  for (const auto& entry : self.mapping()->entries) values.push_back(entry.second);
  return Value::list(std::move(values));
}

Value looked_up(const Value& self, Parameters& parameters, Runtime& runtime) {
  const Value key = parameters.take("key"), otherwise = parameters.take("default", None{});
  runtime.charge(self.mapping()->entries.size());
  const Value* const found = self.mapping()->find(key);
  return found ? *found : otherwise;
}

constexpr Method kMappingMethods[] = {
    {"items", entries_of},
    {"keys", [](const Value& self, Parameters&, Runtime& runtime) { return Value::list(items_of(self, runtime)); }},
    {"values", values_of},
    {"get", looked_up},
    {"copy", [](const Value& self, Parameters&, Runtime&) { return self; }},
    {"clear", nullptr},
    {"fromkeys", nullptr},
    {"pop", nullptr},
    {"popitem", nullptr},
    {"setdefault", nullptr},
    {"update", nullptr},
};

Value place_in_list(const Value& self, Parameters& parameters, Runtime& runtime) {
  const Value wanted = parameters.take("value");
  runtime.charge(self.weight());
  const std::vector<Value>& items = self.list()->items;
  const auto found = std::find_if(items.begin(), items.end(), [&](const Value& item) { return equal(item, wanted); });
  if (found == items.end()) throw Failure{"the value is not in the list"};
  return int64_t{found - items.begin()};
}

Value counted_in_list(const Value& self, Parameters& parameters, Runtime& runtime) {
  const Value wanted = parameters.take("value");
  runtime.charge(self.weight());
  const std::vector<Value>& items = self.list()->items;
  return int64_t{std::count_if(items.begin(), items.end(), [&](const Value& item) { return equal(item, wanted); })};
}

constexpr Method kListMethods[] = {
    {"index", place_in_list},
    {"count", counted_in_list},
    {"copy", [](const Value& self, Parameters&, Runtime&) { return self; }},
    {"append", nullptr},
    {"clear", nullptr},
    {"extend", nullptr},
    {"insert", nullptr},
    {"pop", nullptr},
    {"remove", nullptr},
    {"reverse", nullptr},
    {"sort", nullptr},
};

class BoundMethod : public Function {
 public:
  BoundMethod(const Value& self, const Method& method) : self_(self), method_(method) {}

  Value call(Runtime& runtime, Arguments arguments) const override {
    if (!method_.body) {
      throw Failure{fmt::format("the method {}() of a {} is not supported: {}", method_.name, self_.type_name(),
                                self_.text() ? "it is rare in templates" : "it would change the value")};
    }
    runtime.charge(self_.text() ? 2 * self_.text()->size() : 1);
    Parameters parameters(fmt::format("{}()", method_.name), std::move(arguments));
    Value result = method_.body(self_, parameters, runtime);
    parameters.end();
    return result;
  }

 private:
  const Value self_;
  const Method& method_;
};

}  // namespace

std::optional<Value> method(const Value& value, std::string_view name) {
  const auto find = [&](const auto& methods) -> std::optional<Value> {
    const auto is_it = [name](const Method& m) { return m.name == name; };
    const auto found = std::find_if(std::begin(methods), std::end(methods), is_it);
    if (found == std::end(methods)) return std::nullopt;
    return Value(std::shared_ptr<const Function>(std::make_shared<const BoundMethod>(value, *found)));
  };
  if (value.text()) return find(kTextMethods);
  if (value.mapping()) return find(kMappingMethods);
  return value.list() ? find(kListMethods) : std::nullopt;
}

}  // namespace gpt::jinja
