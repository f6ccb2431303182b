#include "gpt/jinja/template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gpt/core/file.h"
#include "support/expect_error.h"
#include "support/source_folder.h"

namespace gpt::jinja {
namespace {

using nlohmann::ordered_json;

// Written by scripts/make_chat_fixtures.py.
std::string fixture(const std::string& name) {
  return read_file(test::source_folder() + "/tests/jinja/" + name, ExitCode::data);
}

Variables variables_of(const ordered_json& object) {
  Variables variables;
  for (const auto& [name, value] : object.items()) variables.emplace_back(name, from_json(value));
  return variables;
}

// In the form of the fixtures.
ordered_json outcome(const std::string& source, const Variables& variables, std::time_t now) {
  try {
    const Rendered rendered = Template(source).render(variables, now);
    ordered_json generated = ordered_json::array();
    for (const Span& span : rendered.generated)
      generated.push_back(rendered.text.substr(span.begin, span.end - span.begin));
    return {{"text", rendered.text}, {"generated", generated}};
  } catch (const Refusal& refusal) { return {{"refused", refusal.what()}}; } catch (const TemplateError&) {
    return {{"error", true}};
  }
}

std::string render(const std::string& source, const Variables& variables = {}, const Limits& limits = {}) {
  return Template(source).render(variables, 0, limits).text;
}

void expect_refused(const std::string& source, const std::string& message, const Limits& limits = {}) {
  EXPECT_ERROR(render(source, {}, limits), ExitCode::data, message);
}

TEST(Template, RendersDialoguesAsJinja2InTheStyleOfEachFamily) {
  const ordered_json fixtures = ordered_json::parse(fixture("renderings.json"));
  const ordered_json& dialogues = fixtures["dialogues"];
  for (const auto& [name, expected] : fixtures["templates"].items()) {
    const std::string source = fixture("templates/" + name + ".jinja");
    ASSERT_EQ(expected.size(), 2 * dialogues.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ordered_json given = fixtures["common"];
      given["messages"] = dialogues[i / 2], given["add_generation_prompt"] = i % 2 == 1;
      if (name == "tools" && i % 2 == 1) given["tools"] = fixtures["tools"];
      EXPECT_EQ(outcome(source, variables_of(given), fixtures["now"].get<std::time_t>()), expected[i])
          << name << ", dialogue " << i / 2;
    }
  }
}

TEST(Template, ComputesExpressionsAndTakesWhiteSpaceAwayAsJinja2) {
  const ordered_json fixtures = ordered_json::parse(fixture("expressions.json"));
  const Variables variables = variables_of(fixtures["variables"]);
  for (ordered_json expected : fixtures["cases"]) {
    const std::string source = expected["template"];
    expected.erase("template");
    EXPECT_EQ(outcome(source, variables, fixtures["now"].get<std::time_t>()), expected) << source;
  }
}

TEST(Template, SaysInWhichLineItFails) {
  expect_refused("a\nb\n{{ x.y }}", "line 3: 'x' is undefined");
  expect_refused("\n{% call f() %}{% endcall %}", "line 2: the block {% call %} is not supported");
  expect_refused("{{ 1 | wordwrap }}", "line 1: the filter 'wordwrap' is not supported");
  expect_refused("{{ 1 is escaped }}", "line 1: the test 'escaped' is not supported");
  expect_refused("{{ [].append(1) }}",
                 "line 1: the method append() of a list is not supported: it would change the value");
  expect_refused("{% if true %}\n", "line 1: the template ends within a block");
  expect_refused("{{ {'a': 1 }", "line 1: a tag that begins here does not end: }} is missing");
  expect_refused("{% for a in b recursive %}{% endfor %}", "line 1: a loop that is recursive is not supported");
  expect_refused("{{ f(*a) }}", "line 1: arguments that are unpacked, with * or **, are not supported");
}

TEST(Template, PassesOnWhatTheTemplateRefuses) {
  EXPECT_THROW(render("{{ raise_exception('no\\nway') }}"), Refusal);
  expect_refused("{{ raise_exception('no way') }}", "no way");
}

TEST(Template, EndsThoseThatDoNotEnd) {
  const Limits limits{.work = 1 << 22};  // the default takes a second
  const auto expect_ended = [&](const std::string& source) {
    expect_refused(source, "line 1: the template takes too many steps", limits);
  };
  const std::string many = "{% for i in range(100000) %}";
  expect_ended(many + many + many + "{% set x = i %}{% endfor %}{% endfor %}{% endfor %}");
  // A text, a list and a comparison that double with each round.
  const auto doubling = [&](const std::string& start, const std::string& grown) {
    expect_ended("{% set n = namespace(x=" + start + ") %}{% for i in range(90) %}{% set n.x = " + grown +
                 " %}{% endfor %}{{ n.x == n.x }}");
  };
  doubling("'ab'", "n.x ~ n.x");
  doubling("[1]", "n.x + n.x");
  doubling("[1]", "[n.x, n.x]");
  expect_ended("{{ 'ab' * 1000000000000 }}");
  expect_ended("{{ 'abc'.replace('', 'x' * 1000000) * 100 }}");
}

TEST(Template, LimitsDepthAndLength) {
  expect_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                 "line 1: macros or expressions are nested too deeply");
  expect_refused("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}",
                 "line 1: expressions or blocks are nested too deeply");
  std::string sum = "{{ 1", blocks, negations = "{{ ";
  for (int i = 0; i < 5000; ++i) sum += " + 1", blocks += "{% if true %}", negations += "not ";
  expect_refused(sum + " }}", "line 1: expressions or blocks are nested too deeply");
  expect_refused(blocks, "line 1: expressions or blocks are nested too deeply");
  expect_refused(negations + "1 }}", "line 1: expressions or blocks are nested too deeply");
  expect_refused("{% set n = namespace(x=[]) %}{% for i in range(1000) %}{% set n.x = [n.x] %}{% endfor %}",
                 "line 1: values are nested too deeply");
  expect_refused("{% set n = namespace() %}{% set n.n = n %}",
                 "line 1: a namespace or a function cannot lie in a namespace");
  expect_refused("{{ [namespace()] }}", "line 1: a namespace or a function is a variable, and cannot lie in a value");
  expect_refused("{% for i in range(100) %}0123456789{% endfor %}", "line 1: the text becomes longer than 500 bytes",
                 {.output = 500});
}

TEST(Template, RefusesGenerationWhereItsPlaceIsNotKnown) {
  expect_refused("{% macro m() %}{% generation %}a{% endgeneration %}{% endmacro %}{{ m() }}",
                 "line 1: {% generation %} within a macro or a {% set %} block is not supported");
}

}  // namespace
}  // namespace gpt::jinja
