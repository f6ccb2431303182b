// What statements do.
#include <fmt/format.h>

#include <algorithm>

#include "error_at.h"
#include "functions.h"
#include "operators.h"
#include "syntax.h"

namespace gpt::jinja {
namespace {

// `loop` within a loop.
class Loop : public Object {
 public:
  explicit Loop(const std::vector<Value>& items) : items_(items) {}

  std::optional<Value> attribute(std::string_view name) const override {
    const int64_t size = std::ssize(items_);
    if (name == "index") return at + 1;
    if (name == "index0") return at;
    if (name == "revindex") return size - at;
    if (name == "revindex0") return size - at - 1;
    if (name == "first") return at == 0;
    if (name == "last") return at == size - 1;
    if (name == "length") return size;
    if (name == "depth") return int64_t{1};  // of loops that call themselves, which are not supported
    if (name == "depth0") return int64_t{0};
    if (name == "previtem")
      return at > 0 ? items_[static_cast<size_t>(at) - 1] : Value(Undefined{"there is no previous item"});
    if (name == "nextitem")
      return at + 1 < size ? items_[static_cast<size_t>(at) + 1] : Value(Undefined{"there is no next item"});
    if (name == "cycle") return cycle(at);
    if (name == "changed") throw Failure{"loop.changed is not supported"};
    return std::nullopt;
  }

  int64_t at = 0;

 private:
  const std::vector<Value> items_;
};

class MacroFunction : public Function {
 public:
  MacroFunction(const Macro& macro, const Scope& scope) : macro_(macro), scope_(scope) {}

  Value call(Runtime& runtime, Arguments arguments) const override {
    const Runtime::Depth depth(runtime);
    Scope inner{&scope_};
    Parameters parameters(fmt::format("the macro {}()", macro_.name), std::move(arguments));
    for (const auto& [name, otherwise] : macro_.parameters) {
      Value value = parameters.take(name, Undefined{fmt::format("the parameter '{}' was not given", name)});
      if (value.is_undefined() && otherwise) value = otherwise->value(inner, runtime);
      inner.set(name, std::move(value));
    }
    parameters.end();
    Runtime::Capture capture(runtime);
    macro_.body.run(inner, runtime);
    return capture.take();
  }

 private:
  const Macro& macro_;
  const Scope& scope_;
};

}  // namespace

Flow Statement::run(Scope& scope, Runtime& runtime) const {
  try {
    const Runtime::Depth depth(runtime);
    runtime.charge(1);
    return carry_out(scope, runtime);
  } catch (const Failure& failure) { fail_at(line, failure.why); }
}

Flow Statements::run(Scope& scope, Runtime& runtime) const {
  for (const auto& statement : all)
    if (const Flow flow = statement->run(scope, runtime); flow != Flow::on) return flow;
  return Flow::on;
}

void Target::assign(Scope& scope, const Value& value, Runtime& runtime) const {
  if (!attribute.empty()) return set_attribute(scope.find(names[0]), names[0], attribute, value);
  if (!is_tuple) return scope.set(names[0], value);
  const std::vector<Value> items = items_of(defined(value), runtime);
  if (items.size() != names.size())
    throw Failure{fmt::format("{} values are assigned to {} names", items.size(), names.size())};
  for (size_t i = 0; i < names.size(); ++i) scope.set(names[i], items[i]);
}

Flow Text::carry_out(Scope&, Runtime& runtime) const {
  runtime.write(text);
  return Flow::on;
}

Flow Output::carry_out(Scope& scope, Runtime& runtime) const {
  runtime.write(text_of(what->value(scope, runtime), runtime));
  return Flow::on;
}

Flow If::carry_out(Scope& scope, Runtime& runtime) const {
  for (const auto& [condition, branch] : branches)
    if (is_true(condition->value(scope, runtime))) return branch.run(scope, runtime);
  return otherwise.run(scope, runtime);
}

std::vector<Value> For::chosen_items(const Scope& scope, Runtime& runtime) const {
  std::vector<Value> items = items_of(sequence->value(scope, runtime), runtime), chosen;
  if (!condition) return items;
  for (Value& item : items) {
    Scope inner{&scope};
    target.assign(inner, item, runtime);
    if (is_true(condition->value(inner, runtime))) chosen.push_back(std::move(item));
  }
  return chosen;
}

Flow For::carry_out(Scope& scope, Runtime& runtime) const {
  const std::vector<Value> items = chosen_items(scope, runtime);
  if (items.empty()) {
    Scope inner{&scope};
    return otherwise.run(inner, runtime);
  }
  const auto loop = std::make_shared<Loop>(items);
  for (; loop->at < std::ssize(items); ++loop->at) {
    Scope inner{&scope};
    inner.set("loop", std::shared_ptr<Object>(loop));
    target.assign(inner, items[static_cast<size_t>(loop->at)], runtime);
    if (body.run(inner, runtime) == Flow::leaves_loop) break;
  }
  return Flow::on;
}

Flow Set::carry_out(Scope& scope, Runtime& runtime) const {
  if (what) {
    target.assign(scope, what->value(scope, runtime), runtime);
    return Flow::on;
  }
  Value value;
  {
    Runtime::Capture capture(runtime);
    Scope inner{&scope};
    body.run(inner, runtime);
    value = capture.take();
  }
  for (const auto& filter : filters) value = filter->apply(value, scope, runtime);
  target.assign(scope, value, runtime);
  return Flow::on;
}

Flow Macro::carry_out(Scope& scope, Runtime&) const {
  scope.set(name, std::shared_ptr<const Function>(std::make_shared<const MacroFunction>(*this, scope)));
  return Flow::on;
}

Flow Generation::carry_out(Scope& scope, Runtime& runtime) const {
  if (runtime.is_captured()) throw Failure{"{% generation %} within a macro or a {% set %} block is not supported"};
  const size_t begin = runtime.output().size();
  Scope inner{&scope};
  const Flow flow = body.run(inner, runtime);
  runtime.generated.push_back({begin, runtime.output().size()});
  return flow;
}

}  // namespace gpt::jinja
