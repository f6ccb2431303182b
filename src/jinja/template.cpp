#include "gpt/jinja/template.h"

#include "functions.h"
#include "parser.h"
#include "syntax.h"

namespace gpt::jinja {

Template::Template(std::string_view source) : statements_(std::make_unique<const Statements>(parse(source))) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Rendered Template::render(const Variables& variables, std::optional<std::time_t> now, const Limits& limits) const {
  Runtime runtime(now, limits);
  const Scope functions{nullptr, global_functions()}, given{&functions, variables};
  Scope scope{&given};
  statements_->run(scope, runtime);
  return {runtime.output(), std::move(runtime.generated)};
}

}  // namespace gpt::jinja
