// The table of rules for people: which values of which keys exclude each other, found by trying them, and which keys are idle when.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "gpt/config/rules.h"
#include "rule.h"

namespace gpt::config {
namespace {

// Values of two keys that a rule keeps apart.
struct Exclusion {
  std::string key, other;
  std::vector<std::string> values, others;
  std::string why;
};

void add_once(std::vector<std::string>& values, const std::string& value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

const Technique* technique_of(const std::vector<Technique>& all, const std::string& key) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Technique& one) { return one.key == key; });
  return found == all.end() ? nullptr : &*found;
}

Exclusion exclusion_of(const RefusalRule& rule, const Technique& one, const Technique& two) {
  Exclusion found{.key = one.key, .other = two.key, .values = {}, .others = {}, .why = {}};
  for (const std::string& value : one.values) {
    for (const std::string& other : two.values) {
      Config config;
      Keys keys(config);
      keys.set(one.key, value);
      keys.set(two.key, other);
      Facts facts = implied_facts(config);
      facts.data_processes = 2;  // without which much of it would not matter
      if (!rule.when(config, facts)) continue;
      add_once(found.values, value);
      add_once(found.others, other);
      if (found.why.empty()) found.why = rule.why(config);
    }
  }
  return found;
}

// What all values of a key share is no matter of the pair.
bool is_of_both(const Exclusion& exclusion, const Technique& one, const Technique& two) {
  return !exclusion.values.empty() && exclusion.values.size() < one.values.size() &&
         exclusion.others.size() < two.values.size();
}

std::string cell(const std::string& key, const std::vector<std::string>& values) {
  std::vector<std::string> shown;
  std::transform(values.begin(), values.end(), std::back_inserter(shown),
                 [](const std::string& value) { return value.empty() ? "(none)" : value; });
  return fmt::format("`{}`: {}", key, fmt::join(shown, ", "));
}

}  // namespace

std::string rules_markdown() {
  const std::vector<Technique> all = techniques();
  std::string result =
      "### What does not go together\n\n"
      "| these | and these | because |\n| --- | --- | --- |\n";
  for (const RefusalRule& rule : refusal_rules()) {
    for (size_t i = 0; i < rule.keys.size(); ++i) {
      for (size_t j = i + 1; j < rule.keys.size(); ++j) {
        const Technique *one = technique_of(all, rule.keys[i]), *two = technique_of(all, rule.keys[j]);
        if (!one || !two) continue;
        const Exclusion found = exclusion_of(rule, *one, *two);
        if (is_of_both(found, *one, *two))
          result += fmt::format("| {} | {} | {} |\n", cell(found.key, found.values), cell(found.other, found.others),
                                found.why);
      }
    }
  }
  result += "\n### What has no effect\n\n| key | where |\n| --- | --- |\n";
  for (const IdleRule& rule : idle_rules())
    result += fmt::format("| `{}` | {} |\n", fmt::join(rule.keys, "`, `"), rule.why);
  return result;
}

}  // namespace gpt::config
