#include "runtime.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpt::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->outer) {
    for (const auto& [key, value] : scope->variables)
      if (key == name) return &value;
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  const auto is_it = [name](const auto& variable) { return variable.first == name; };
  const auto found = std::find_if(variables.begin(), variables.end(), is_it);
  found != variables.end() ? (void)(found->second = std::move(value))
                           : (void)variables.emplace_back(name, std::move(value));
}

void Runtime::charge(size_t size) {
  constexpr size_t kMost = size_t{1} << 40;
  work_left_ -= static_cast<int64_t>(std::min(size, kMost));
  if (work_left_ < 0) throw Failure{"the template takes too many steps"};
}

Runtime::Depth::Depth(Runtime& runtime) : runtime(runtime) {
  constexpr int kDeepest = 800;  // of functions that call each other, about 1 KB of the stack each
  if (runtime.depth_ >= kDeepest) throw Failure{"macros or expressions are nested too deeply"};
  ++runtime.depth_;
}

void Runtime::write(std::string_view text) {
  charge(text.size());
  if (output_.size() + text.size() > limits_.output)
    throw Failure{fmt::format("the text becomes longer than {} bytes", limits_.output)};
  output_ += text;
}

}  // namespace gpt::jinja
