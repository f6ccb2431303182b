// A template, NUL, the JSON of its variables.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "expect.h"
#include "gpt/core/utf8.h"
#include "gpt/jinja/template.h"

namespace {

using namespace gpt;

jinja::Variables variables_of(std::string_view text) {
  using nlohmann::ordered_json;
  constexpr int kDeepest = 8;
  const auto shallow = [](int depth, ordered_json::parse_event_t, ordered_json&) { return depth <= kDeepest; };
  const ordered_json object = ordered_json::parse(text, shallow, /*allow_exceptions=*/false);
  jinja::Variables variables;
  if (!object.is_object()) return variables;
  for (const auto& [name, value] : object.items()) variables.emplace_back(name, jinja::from_json(value));
  return variables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view variables(reinterpret_cast<const char*>(data), size);
  const std::string_view source = fuzz::next_part(variables);
  fuzz::accept_or_refuse([&] {
    const jinja::Limits limits{.work = 1 << 20, .output = 1 << 16};
    const jinja::Template chat(source);
    const jinja::Rendered rendered = chat.render(variables_of(variables), 0, limits);
    fuzz::expect(utf8::is_valid(rendered.text) && rendered.text.size() <= limits.output, "a text of characters");
    size_t last = 0;
    for (const jinja::Span& span : rendered.generated) {
      fuzz::expect(last <= span.end && span.begin <= span.end && span.end <= rendered.text.size(),
                   "spans within the text");
      last = span.end;
    }
    fuzz::expect(chat.render(variables_of(variables), 0, limits).text == rendered.text, "the same text again");
  });
  return 0;
}
