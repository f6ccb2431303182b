#include "functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "error_at.h"
#include "gpt/core/format.h"
#include "gpt/core/printable.h"
#include "operators.h"
#include "parameters.h"

namespace gpt::jinja {
namespace {

class Namespace : public Object {
 public:
  std::optional<Value> attribute(std::string_view name) const override {
    const Value* const found = attributes_.find(name);
    return found ? std::optional(*found) : std::nullopt;
  }

  void set(const std::string& name, const Value& value) {
    if (value.object() || value.function()) throw Failure{"a namespace or a function cannot lie in a namespace"};
    attributes_.set(name, value);
  }

 private:
  Scope attributes_;
};

using FunctionBody = Value (*)(Parameters& parameters, Runtime& runtime);

class NamedFunction : public Function {
 public:
  NamedFunction(std::string_view name, FunctionBody body) : name_(name), body_(body) {}

  Value call(Runtime& runtime, Arguments arguments) const override {
    Parameters parameters(fmt::format("{}()", name_), std::move(arguments));
    Value result = body_(parameters, runtime);
    parameters.end();
    return result;
  }

 private:
  const std::string_view name_;
  const FunctionBody body_;
};

Value range(Parameters& parameters, Runtime& runtime) {
  constexpr int64_t kMost = 100'000;  // as in Jinja's sandbox
  const int64_t first = parameters.integer("start", 0);
  const bool has_both = parameters.has_more();
  const int64_t begin = has_both ? first : 0, end = has_both ? parameters.integer("stop", 0) : first,
                step = parameters.integer("step", 1);
  if (step == 0) throw Failure{"the step of a range cannot be 0"};
  std::vector<Value> numbers;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (std::ssize(numbers) == kMost) throw Failure{fmt::format("a range has at most {} numbers", kMost)};
    numbers.push_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  runtime.charge(32 * numbers.size());
  return Value::list(std::move(numbers));
}

// Calls visit(name, value) for each entry of the mapping that is given, where one is, and for each argument with a name.
template <class Visitor>
void for_each_entry(Parameters& parameters, Runtime& runtime, const Visitor& visit) {
  const Arguments given = parameters.rest();
  if (given.positional.size() > 1) throw Failure{"at most one mapping is taken, and values by their names"};
  if (!given.positional.empty()) {
    if (!given.positional[0].mapping())
      throw Failure{fmt::format("a {} is no mapping", given.positional[0].type_name())};
    for (const auto& [key, value] : given.positional[0].mapping()->entries) visit(text_of(key, runtime), value);
  }
  for (const auto& [name, value] : given.named) visit(name, value);
}

Value make_namespace(Parameters& parameters, Runtime& runtime) {
  const auto made = std::make_shared<Namespace>();
  for_each_entry(parameters, runtime, [&](const std::string& name, const Value& value) { made->set(name, value); });
  return std::shared_ptr<Object>(made);
}

Value make_mapping(Parameters& parameters, Runtime& runtime) {
  Scope entries;
  for_each_entry(parameters, runtime, [&](const std::string& name, const Value& value) {
    runtime.charge(entries.variables.size());
    entries.set(name, value);
  });
  return Value::mapping({entries.variables.begin(), entries.variables.end()});
}

Value raise_exception(Parameters& parameters, Runtime& runtime) {
  const std::string message = text_of(parameters.take("message"), runtime);
  throw Refusal(shortened(printable_line(message), kLongestMessage));
}

Value strftime_now(Parameters& parameters, Runtime& runtime) {
  const std::string format = parameters.text("format");
  const std::time_t now = runtime.now.value_or(std::time(nullptr));
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 1000> text{};
  // A character in front tells an empty text from one that does not fit.
  if (std::strftime(text.data(), text.size(), (" " + format).c_str(), &local) == 0)
    throw Failure{"the time becomes too long a text"};
  return text.data() + 1;
}

}  // namespace

const Variables& global_functions() {
  const auto function = [](std::string_view name, FunctionBody body) {
    return std::pair<std::string, Value>(name, std::shared_ptr<const Function>(
                                                   std::make_shared<const NamedFunction>(name, body)));
  };
  static const Variables kFunctions = {function("range", range), function("namespace", make_namespace),
                                       function("dict", make_mapping), function("raise_exception", raise_exception),
                                       function("strftime_now", strftime_now)};
  return kFunctions;
}

Value cycle(int64_t at) {
  class Cycle : public Function {
   public:
    explicit Cycle(int64_t at) : at_(static_cast<size_t>(at)) {}
    Value call(Runtime&, Arguments arguments) const override {
      if (arguments.positional.empty()) throw Failure{"loop.cycle() needs values"};
      return arguments.positional[at_ % arguments.positional.size()];
    }

   private:
    const size_t at_;
  };
  return std::shared_ptr<const Function>(std::make_shared<const Cycle>(at));
}

void set_attribute(const Value* object, const std::string& variable, const std::string& name, const Value& value) {
  auto* const found = object && object->object() ? dynamic_cast<Namespace*>(object->object()) : nullptr;
  if (!found) throw Failure{fmt::format("'{}' is no namespace, so '{}.{}' cannot be set", variable, variable, name)};
  found->set(name, value);
}

}  // namespace gpt::jinja
