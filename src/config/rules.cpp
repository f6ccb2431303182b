#include "gpt/config/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "gpt/config/node.h"
#include "gpt/config/option.h"
#include "gpt/config/setting.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "rule.h"

namespace gpt::config {
namespace {

const RefusalRule* first_broken(const Config& config, const Facts& facts) {
  for (const RefusalRule& rule : refusal_rules())
    if (rule.when(config, facts)) return &rule;
  return nullptr;
}

// Where a person wrote one of the keys: the first that a flag has set, or else the first that was written at all.
std::string place_of(const std::vector<std::string>& keys, const std::string& origin, const Origins& origins) {
  const std::string* where = nullptr;
  for (const std::string& key : keys) {
    const auto found = origins.find(key);
    if (found == origins.end()) continue;
    const bool is_flag = found->second.starts_with("--");
    if (is_flag || !where) where = &found->second;
    if (is_flag) break;
  }
  return where ? *where : origin.empty() ? keys.front() : origin;
}

const Keys& default_keys() {
  static Config defaults;
  static const Keys keys(defaults);
  return keys;
}

std::string short_name(const std::string& key) {
  return default_keys().needs_section(key) ? key : key.substr(key.rfind('.') + 1);
}

std::string value_of(const Assignment& change) {
  return change.value ? *change.value : default_keys().value(change.key);
}

bool is_other_value(const Cure& one, const Cure& other) {
  return one.size() == 1 && other.size() == 1 && one.front().key == other.front().key && one.front().value &&
         other.front().value;
}

// Whether a cure changes something, and none of the keys that are kept.
bool is_usable(const Cure& cure, const Keys& keys, const IsKept& is_kept) {
  return std::none_of(cure.begin(), cure.end(), [&](const Assignment& change) { return is_kept(change.key); }) &&
         std::any_of(cure.begin(), cure.end(),
                     [&](const Assignment& change) { return keys.value(change.key) != value_of(change); });
}

}  // namespace

std::string in_words(const std::vector<Cure>& cures) {
  std::string words;
  bool has_verb = false;
  for (size_t i = 0; i < cures.size(); ++i) {
    words += words.empty() ? "" : ", or ";
    for (const auto& [key, value] : cures[i]) {
      words += &key == &cures[i].front().key ? "" : " and ";
      words += value ? fmt::format("{}{} to {}", has_verb ? "" : "set ", short_name(key), *value)
                     : fmt::format("leave {} out", short_name(key));
      has_verb = value.has_value();
    }
    // Further values of the same key.
    for (; i + 1 < cures.size() && is_other_value(cures[i], cures[i + 1]); ++i) {
      const bool is_last = i + 2 == cures.size() || !is_other_value(cures[i + 1], cures[i + 2]);
      words += (is_last ? " or " : ", ") + *cures[i + 1].front().value;
    }
  }
  return words;
}

std::optional<Refusal> find_refusal(const Config& config, const Facts& facts) {
  const RefusalRule* rule = first_broken(config, facts);
  if (!rule) return std::nullopt;
  std::string advice = rule->advice(config);
  if (advice.empty()) advice = in_words(rule->cures(config));
  return Refusal{rule->keys, rule->why(config), std::move(advice)};
}

void require_agreement(const Config& config, const Facts& facts, const std::string& origin, const Origins& origins) {
  if (const auto refusal = find_refusal(config, facts))
    throw Error(ExitCode::config, fmt::format("{}: {}", place_of(refusal->keys, origin, origins), refusal->text()));
}

std::vector<IdleKeys> find_idle(const Config& config, const Facts& facts) {
  static const std::vector<IdleRule> rules = idle_rules();
  std::vector<IdleKeys> idle;
  std::set<std::string> named;  // each for its first reason
  for (const IdleRule& rule : rules) {
    if (!rule.when(config, facts)) continue;
    IdleKeys found{{}, rule.why};
    for (const std::string& key : rule.keys)
      if (named.insert(key).second) found.keys.push_back(key);
    if (!found.keys.empty()) idle.push_back(std::move(found));
  }
  return idle;
}

std::optional<std::vector<std::string>> cure(Config& config, const IsKept& is_kept, const Facts& known) {
  constexpr int kMostCures = 8;
  Config cured = config;
  Facts facts = known;
  Keys keys(cured);
  std::vector<std::string> changes;
  for (int count = 0; count < kMostCures; ++count) {
    const RefusalRule* rule = first_broken(cured, facts);
    if (!rule) {
      config = std::move(cured);
      return changes;
    }
    const std::vector<Cure> cures = rule->cures(cured);
    const auto usable =
        std::find_if(cures.begin(), cures.end(), [&](const Cure& one) { return is_usable(one, keys, is_kept); });
    if (usable == cures.end()) return std::nullopt;
    for (const Assignment& change : *usable) {
      keys.set(change.key, value_of(change));
      changes.push_back(fmt::format("{}: {}", change.key, keys.value(change.key)));
    }
    if (cured.device != config.device) facts.is_cpu = cured.device == "cpu";
  }
  return std::nullopt;
}

std::optional<std::vector<std::string>> cure_unwritten(Config& config, const Origins& origins,
                                                       const std::vector<std::string>& chosen, const Facts& facts) {
  const auto is_chosen = [&](const std::string& key) {
    return std::find(chosen.begin(), chosen.end(), key) != chosen.end();
  };
  const auto is_written = [&](const std::string& key) { return is_chosen(key) || origins.contains(key); };
  // First without touching what a person wrote. Where that leaves a contradiction, all of its keys were written.
  if (auto changes = cure(config, is_written, facts)) return changes;
  return cure(config, is_chosen, facts);
}

std::vector<Technique> techniques() {
  std::vector<Technique> found;
  Config defaults;
  for (const Option& row : options(defaults)) {
    std::vector<std::string> values;
    if (std::holds_alternative<bool*>(row.target)) {
      values = {"false", "true"};
    } else if (const auto* choice = std::get_if<Choice>(&row.target)) {
      values = choice->names;
    }
    values.insert(values.end(), row.tried.begin(), row.tried.end());
    if (!values.empty()) found.push_back({row.key(), std::move(values)});
  }
  return found;
}

Keys::Keys(Config& config) {
  for (Option& row : options(config)) rows_.emplace(row.key(), std::move(row));
}

const Option& Keys::row(const std::string& key) const {
  const auto found = rows_.find(key);
  if (found == rows_.end()) throw Error(ExitCode::config, fmt::format("there is no key {}", key));
  return found->second;
}

void Keys::set(const std::string& key, const std::string& value) {
  Setting setting{.key = key, .text = value, .quoted = value.empty(), .written = key, .where = key};
  if (std::holds_alternative<Structure>(row(key).target))
    setting.node = std::make_shared<const Node>(parse_node(value, key));
  apply_settings({setting}, {row(key)});
}

std::string Keys::value(const std::string& key) const { return value_text(row(key).target); }

bool Keys::needs_section(const std::string& key) const { return row(key).is_shadowed; }

}  // namespace gpt::config
