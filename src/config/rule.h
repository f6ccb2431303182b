// A row of the tables behind config/rules.h, and what its rows are written with.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/config/facts.h"

namespace gpt::config {

// A setting as a person would write it; without a value the key is left out, so that its default counts.
struct Assignment {
  std::string key;
  std::optional<std::string> value;
};
using Cure = std::vector<Assignment>;  // which belong together

inline Cure set_to(std::string key, std::string value) { return {{std::move(key), std::move(value)}}; }
inline Cure leave_out(std::string key) { return {{std::move(key), std::nullopt}}; }
// A cure for each of these values.
std::vector<Cure> set_to_each(const std::string& key, const std::vector<int64_t>& values);
std::vector<Cure> either(std::vector<Cure> some, const std::vector<Cure>& others);

// A value of a row that may depend on the configuration.
template <class Value>
class Dependent {
 public:
  Dependent() = default;
  Dependent(Value value) : compute_([value = std::move(value)](const Config&) { return value; }) {}
  Dependent(const char* text) : Dependent(Value(text)) {}
  Dependent(std::initializer_list<typename Value::value_type> values) : Dependent(Value(values)) {}
  template <class Compute>
    requires std::is_invocable_v<Compute, const Config&>
  Dependent(Compute compute) : compute_(std::move(compute)) {}

  Value operator()(const Config& config) const { return compute_ ? compute_(config) : Value(); }

 private:
  std::function<Value(const Config&)> compute_;
};

using When = std::function<bool(const Config& config, const Facts& facts)>;

inline bool packs_conversations(const Config& config, const Facts& facts) {
  return config.data.packing && facts.has_conversations == true;
}

// Settings that exclude each other. The words of the advice follow from the cures, unless `advice` says more.
struct RefusalRule {
  std::vector<std::string> keys;  // a fault stands at the first of these that was written
  When when;
  Dependent<std::string> why;
  Dependent<std::vector<Cure>> cures = {};
  Dependent<std::string> advice = {};
};

struct IdleRule {
  std::vector<std::string> keys;
  When when;
  const char* why;
};

// In the order in which faults are named.
std::vector<RefusalRule> model_rules();
std::vector<RefusalRule> data_rules();
std::vector<RefusalRule> batch_rules();
std::vector<RefusalRule> distributed_rules();
std::vector<RefusalRule> stage_rules();
std::vector<RefusalRule> training_rules();
std::vector<RefusalRule> precision_rules();
std::vector<RefusalRule> attention_rules();
std::vector<IdleRule> idle_rules();

const std::vector<RefusalRule>& refusal_rules();  // all of them, in that order

// What the configuration itself says of the device and the precision.
Facts implied_facts(const Config& config);

// "set use_compile to true, or quantized_forward to none".
std::string in_words(const std::vector<Cure>& cures);

// The nearest values around `value` for which `holds`: one or two, the smaller first.
template <class Condition>
std::vector<int64_t> nearest(int64_t value, Condition holds) {
  int64_t below = value - 1, above = value + 1;
  while (below > 0 && !holds(below)) --below;
  const int64_t limit = 2 * value + 1048576;
  while (above < limit && !holds(above)) ++above;
  std::vector<int64_t> found;
  if (below > 0) found.push_back(below);
  if (above < limit) found.push_back(above);
  return found;
}

}  // namespace gpt::config
